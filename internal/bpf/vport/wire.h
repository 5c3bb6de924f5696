/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a socket buffer is on the wire: every frame with its Ethernet header and VLAN
 * tags, and without preamble, frame check sequence and padding. A GSO or GRO
 * super-frame is the frames that it was or becomes, and a tag counts also where the
 * kernel keeps it beside the frame. */
#ifndef VIGIA_VPORT_WIRE_H
#define VIGIA_VPORT_WIRE_H

#define TAG_BYTES 4
#define MAX_TAGS 2               /* 802.1ad, 802.1Q */
#define MAX_TUNNELS 2            /* headers of a super-frame are looked for in so many */
#define MAX_IPV6_EXTENSIONS 6
#define UNEQUAL_SEGMENTS 0xffff  /* GSO_BY_FRAGS: SCTP's packets have sizes of their own */
#define VXLAN_VNI 0x08           /* flag: the header has a VNI (RFC 7348) */
#define GRE_CSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQ 0x1000
#define ETHERTYPE_TEB 0x6558     /* Ethernet frames in a tunnel */
#define TUNNEL_HEADER 8          /* of VXLAN, and of Geneve without options */

struct wire {
	__u32 bytes;   /* of all frames */
	__u32 packets; /* frames */
	__u32 frame;   /* bytes of each but the last; 0 = unknown */
};

/* Where a super-frame is read, and what is found. */
struct cursor {
	__u32 at;
	__u32 surplus; /* bytes of headers that the super-frame has and no frame on the wire */
	__be16 type;   /* of the network header */
	__u8 next;     /* protocol of what follows that header */
};

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* pass_ethernet reads a MAC header and the tags in the frame. */
static __always_inline int pass_ethernet(struct __sk_buff *skb, struct cursor *c)
{
	if (bpf_skb_load_bytes(skb, c->at + 2 * ETH_ALEN, &c->type, sizeof(c->type)))
		return -1;
	c->at += sizeof(struct ethhdr);
	for (int i = 0; i < MAX_TAGS && is_tag(c->type); i++) {
		if (bpf_skb_load_bytes(skb, c->at + 2, &c->type, sizeof(c->type)))
			return -1;
		c->at += TAG_BYTES;
	}
	return 0;
}

/* pass_ipv6 reads an IPv6 header and its extensions. Beyond 64 kB the kernel puts a
 * jumbogram's hop-by-hop option into a super-frame (BIG TCP), and takes it away again. */
static __always_inline int pass_ipv6(struct __sk_buff *skb, struct cursor *c)
{
	struct ipv6hdr ip;
	__u8 h[2];

	if (bpf_skb_load_bytes(skb, c->at, &ip, sizeof(ip)))
		return -1;
	c->next = ip.nexthdr;
	c->at += sizeof(ip);
	for (int i = 0; i < MAX_IPV6_EXTENSIONS; i++) {
		if (c->next != IPPROTO_HOPOPTS && c->next != IPPROTO_ROUTING && c->next != IPPROTO_DSTOPTS)
			return 0;
		if (bpf_skb_load_bytes(skb, c->at, h, sizeof(h)))
			return -1;
		if (c->next == IPPROTO_HOPOPTS && !ip.payload_len)
			c->surplus += (h[1] + 1) * 8;
		c->next = h[0];
		c->at += (h[1] + 1) * 8;
	}
	return 0;
}

/* pass_network reads the network header. It and those below are global functions, which
 * the verifier looks at once and by themselves, not along every path to them. */
__noinline int pass_network(struct __sk_buff *skb, struct cursor *c)
{
	if (!c)
		return -1;
	if (c->type == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, c->at, &ip, sizeof(ip)))
			return -1;
		c->next = ip.protocol;
		c->at += ip.ihl * 4;
		return 0;
	}
	return c->type == bpf_htons(ETH_P_IPV6) ? pass_ipv6(skb, c) : -1;
}

/* pass_gre leaves the cursor at what GRE carries (RFC 2784, RFC 2890). */
static __always_inline int pass_gre(struct __sk_buff *skb, struct cursor *c)
{
	__be16 gre[2];

	if (bpf_skb_load_bytes(skb, c->at, gre, sizeof(gre)))
		return -1;
	c->at += sizeof(gre) + (gre[0] & bpf_htons(GRE_CSUM) ? 4 : 0) + (gre[0] & bpf_htons(GRE_KEY) ? 4 : 0) +
		 (gre[0] & bpf_htons(GRE_SEQ) ? 4 : 0);
	c->type = gre[1];
	return c->type == bpf_htons(ETHERTYPE_TEB) ? pass_ethernet(skb, c) : 0;
}

/* fills tells whether the IP packet at the cursor says that it reaches to the end of
 * the super-frame, or that it is too long to say so. */
static __always_inline int fills(struct __sk_buff *skb, struct cursor *c)
{
	__u32 rest = skb->len - c->at;
	__be16 length;

	if (c->type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, c->at + 2, &length, sizeof(length)))
			return 0;
	} else if (c->type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, c->at + 4, &length, sizeof(length)))
			return 0;
		rest -= sizeof(struct ipv6hdr);
	} else {
		return 0;
	}
	return bpf_ntohs(length) == rest || (!length && rest > 0xffff);
}

/* pass_udp_tunnel leaves the cursor at the packet inside VXLAN or Geneve, whatever
 * their port: a frame whose IP packet has just the length that is left is one. */
__noinline int pass_udp_tunnel(struct __sk_buff *skb, struct cursor *c)
{
	struct cursor inner = {};
	__u8 h[4];

	if (!c || bpf_skb_load_bytes(skb, c->at, h, sizeof(h)))
		return -1;
	inner.at = c->at + TUNNEL_HEADER;
	inner.surplus = c->surplus;
	if (h[2] == ETHERTYPE_TEB >> 8 && h[3] == (ETHERTYPE_TEB & 0xff)) /* Geneve, RFC 8926 */
		inner.at += (h[0] & 0x3f) * 4;
	else if (!(h[0] & VXLAN_VNI))
		return -1;
	if (pass_ethernet(skb, &inner) || !fills(skb, &inner))
		return -1;
	*c = inner;
	return 0;
}

/* repeated finds what each frame of a super-frame begins with: all headers down to
 * those of the transport. It leaves the cursor behind them. */
__noinline int repeated(struct __sk_buff *skb, struct cursor *c)
{
	__u8 offset;

	if (!c || pass_ethernet(skb, c))
		return -1;
	for (int i = 0; i <= MAX_TUNNELS; i++) {
		if (pass_network(skb, c))
			return -1;
		switch (c->next) {
		case IPPROTO_TCP:
			if (bpf_skb_load_bytes(skb, c->at + 12, &offset, sizeof(offset)))
				return -1;
			c->at += (offset >> 4) * 4;
			return 0;
		case IPPROTO_SCTP:
			c->at += 12;
			return 0;
		case IPPROTO_UDP:
			c->at += sizeof(struct udphdr);
			if (pass_udp_tunnel(skb, c))
				return 0; /* it is UDP itself that is segmented */
			break;
		case IPPROTO_GRE:
			if (pass_gre(skb, c))
				return -1;
			break;
		case IPPROTO_IPIP:
			c->type = bpf_htons(ETH_P_IP);
			break;
		case IPPROTO_IPV6:
			c->type = bpf_htons(ETH_P_IPV6);
			break;
		default:
			return 0;
		}
	}
	return 0;
}

/* split enters a super-frame of len bytes, each of whose frames begins with so many
 * bytes of headers. What a virtual machine hands over by virtio has gso_size but not
 * yet gso_segs. */
static __always_inline void split(struct wire *w, const struct __sk_buff *skb, __u32 len, __u32 headers)
{
	__u32 segments = skb->gso_segs, size = skb->gso_size;

	if (!segments && len > headers)
		segments = (len - headers + size - 1) / size;
	if (segments <= 1)
		return;
	w->packets = segments;
	w->bytes += (segments - 1) * headers;
	w->frame = size == UNEQUAL_SEGMENTS ? 0 : headers + size;
}

/* single enters a frame that is no super-frame. */
static __always_inline void single(struct wire *w, __u32 bytes)
{
	w->bytes = bytes;
	w->packets = 1;
	w->frame = 0;
}

/* tag_bytes returns the bytes of the tag that is kept beside the frame. */
static __always_inline __u32 tag_bytes(const struct __sk_buff *skb)
{
	return skb->vlan_present * TAG_BYTES; /* it is 0 or 1 */
}

/* measure_stream enters a frame, or a super-frame, with so many bytes of headers,
 * less the tag beside it. */
static __always_inline void measure_stream(struct wire *w, const struct __sk_buff *skb, __u32 headers)
{
	__u32 tag = tag_bytes(skb);

	single(w, skb->len + tag);
	if (skb->gso_size)
		split(w, skb, w->bytes, headers + tag);
}

/* measure_super enters a super-frame that is no plain stream. */
static __always_inline void measure_super(struct wire *w, struct __sk_buff *skb, __u32 tag)
{
	struct cursor c = {};

	if (repeated(skb, &c))
		c.at = c.surplus = 0; /* unknown: then headers count once */
	w->bytes -= c.surplus;
	split(w, skb, w->bytes, c.at - c.surplus + tag);
}

/* measure enters whatever a socket buffer has. */
static __always_inline void measure(struct wire *w, struct __sk_buff *skb)
{
	__u32 tag = tag_bytes(skb);

	single(w, skb->len + tag);
	if (skb->gso_size)
		measure_super(w, skb, tag);
}

#endif
