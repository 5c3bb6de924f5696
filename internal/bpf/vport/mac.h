/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a vport's frames cost a switch that learns addresses. Open vSwitch has a flow for
 * each pair of MAC addresses with their tags and ethertype, and for each question of ARP to
 * everybody; one that it has not seen of late takes its thread as long as dozens of
 * frames, here and where the frame arrives. All ports share that thread. */
#ifndef VIGIA_VPORT_MAC_H
#define VIGIA_VPORT_MAC_H

#include "maps.h"
#include "packet.h"

#define EPOCH_SHIFT 33 /* of nanoseconds, 8.6 s: Open vSwitch forgets a flow that is idle for 10 s */
#define EPOCH 0x3fU    /* bits of an entry that say when it was seen; the others say what */
#define ARP_ADDRESSES 14 /* where an ARP packet over Ethernet has its sender's IPv4 address, */
#define ARP_TARGET 24    /* and the one that it asks for */

static __always_inline __u64 mix(__u64 h, __u64 v, const struct seed *seed)
{
	h = (h ^ v) * seed->times;
	return h ^ h >> 32;
}

/* mac_hash returns what a learning switch tells frames apart by; 0 if the frame is too short. */
static __always_inline __u64 mac_hash(void *data, void *end, const struct seed *seed)
{
	struct ethhdr *eth = data;
	void *at = eth + 1;
	__be16 type;
	__u64 h;

	if (at > end)
		return 0;
	h = mix(seed->add, *(__u32 *)eth->h_dest | (__u64)*(__u16 *)(eth->h_dest + 4) << 32, seed);
	h = mix(h, *(__u32 *)eth->h_source | (__u64)*(__u16 *)(eth->h_source + 4) << 32, seed);
	type = ethertype(eth);
	for (int i = 0; i < MAX_TAGS && is_tag(type) && at + TAG_BYTES <= end; i++) {
		h = mix(h, (__u64)type << 32 | *(__u32 *)at, seed);
		type = *(__be16 *)(at + 2);
		at += TAG_BYTES;
	}
	if (type == bpf_htons(ETH_P_ARP) && at + ARP_TARGET + 4 <= end)
		h = mix(h, *(__u32 *)(at + ARP_ADDRESSES) | (__u64)*(__u32 *)(at + ARP_TARGET) << 32, seed);
	return mix(h, type, seed);
}

/* is_known tells whether the pair is in its set and was seen in this epoch or the last,
 * and enters that it was seen now. */
static __always_inline int is_known(__u32 *set, __u32 what, __u32 epoch)
{
	for (int i = 0; i < PAIR_WAYS; i++) {
		if ((set[i] ^ what) & ~EPOCH || ((epoch - set[i]) & EPOCH) > 1)
			continue;
		if ((set[i] & EPOCH) != epoch)
			set[i] = what | epoch;
		return 1;
	}
	return 0;
}

/* learn puts a pair where the one is that was seen longest ago. */
static __always_inline void learn(__u32 *set, __u32 what, __u32 epoch)
{
	__u32 oldest = 0, age = 0;

	for (__u32 i = 0; i < PAIR_WAYS; i++) {
		__u32 old = set[i] ? (epoch - set[i]) & EPOCH : EPOCH;

		if (old >= age) {
			age = old;
			oldest = i;
		}
	}
	set[oldest & (PAIR_WAYS - 1)] = what | epoch;
}

/* pair_burst is what a bound of new pairs lets through at once: a guest may have to answer
 * everybody in its network. */
static __always_inline __u64 pair_burst(__u64 pairs)
{
	return pairs < 32 ? 128 : 4 * pairs;
}

/* spares_switch holds what is sent to so many new pairs of MAC addresses per second, and lets
 * what belongs to known ones pass. */
static __always_inline int spares_switch(__u32 slot, __u64 pairs, void *data, void *end, const struct seed *seed)
{
	__u64 now = bpf_ktime_get_ns(), h = mac_hash(data, end, seed);
	struct mac_pairs *m = bpf_map_lookup_elem(&vport_mac_pairs, &slot);
	__u32 epoch = now >> EPOCH_SHIFT & EPOCH, what = h & ~EPOCH;
	__u32 *set;
	int pass;

	if (!m || !h)
		return 1;
	set = m->seen[h >> 58 & (PAIR_SETS - 1)];
	if (is_known(set, what, epoch)) /* without the lock: at worst it is new once more */
		return 1;
	bpf_spin_lock(&m->lock);
	pass = take(&m->begun, pairs, pair_burst(pairs), 1, now);
	if (pass)
		learn(set, what, epoch);
	bpf_spin_unlock(&m->lock);
	return pass;
}

#endif
