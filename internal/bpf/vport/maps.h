/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of vports, and the maps that keep it, which user space reads and writes. */
#ifndef VIGIA_VPORT_MAPS_H
#define VIGIA_VPORT_MAPS_H

#include "../include/protocol.h"
#include "bucket.h"

#define WINDOW_NS 100000000ULL /* 100 ms */
#define HISTORY 16             /* closed windows kept, a power of two */
#define DESTINATIONS 8         /* destinations followed per vport, a power of two */
#define PORT_WORDS 16          /* 1024 bits of port spread per destination */
#define BEYOND_BEFORE 2        /* windows in a row before the one that makes a flood of one port */
#define FLOW_WORDS 64          /* 4096 bits of flows per window */
#define PASSED_WORDS 256       /* 16384 bits of flows that passed, per window */
#define PASSED_BITS 4          /* for each: of 10 000 begun per second, one in 200 others passes for known */
#define PAIR_SETS 32           /* pairs of MAC addresses followed per vport, in sets, a power of two, */
#define PAIR_WAYS 16           /* of so many */
#define DESTINATION_LIMITS 16  /* limits to single destinations per vport, beside one on everything */
#define EVERYTHING DESTINATION_LIMITS /* the place of that: it holds where no other does */
#define SIZES 8                /* frame sizes are counted in as many ranges */
#define LOW_IFINDEX 65536
#define HTB_MAJOR 0x1150       /* of the enforcer's HTB qdiscs */
#define SHAPES 0x4000          /* classes that shape limits, */
#define FIRST_SHAPE 0x8000     /* and the minor number of the first */

enum direction { FROM_TENANT, TO_TENANT, DIRECTIONS };

struct traffic {
	__u64 bytes;
	__u64 packets;
};

/* What a vport carries in one direction. What most packets change lies together. */
struct carried {
	__u64 sizes[SIZES]; /* frames by size, see size_range */
	struct traffic protocols[PROTOCOLS];
};

/* Counters of one vport on one CPU. */
struct counters {
	__u32 ifindex; /* whose they are; 0 = nobody's */
	__u32 reserved;
	struct carried carried[DIRECTIONS];
	__u64 policed_bytes; /* of the tenant's */
	__u64 policed_packets;
	__u64 refused_packets; /* to the tenant, beyond its contract or the sender's limit */
};

/* What one destination got from the vport in the current window. */
struct destination {
	__u64 host; /* see struct packet */
	__u32 window; /* low bits of the window that the numbers belong to */
	__u32 hold; /* majority vote for this place (Boyer-Moore) */
	__u32 packets;
	__u32 replies;
	__u32 ports; /* bits set in spread */
	__u32 reserved;
	__u64 spread[PORT_WORDS];
};

/* One 100 ms window of the tenant's UDP, fragments included. */
struct window {
	__u64 id; /* monotonic time / WINDOW_NS; 0 = never used */
	__u64 udp_bytes;
	__u32 udp_packets;
	__u32 fragments;
	/* The busiest destination: */
	__u32 ports;
	__u32 packets;
	__u32 replies;
	__u32 flood; /* 1 if the window met the flood condition */
	__u32 new_flows; /* TCP and UDP flows that began, in 1/256 (estimate) */
	__u32 beyond; /* 1 if its bytes are more than the contract guarantees */
};

/* The flows of this window and the last, each in a bitmap of its own: a flow in neither is new. */
struct flows {
	__u32 set[2]; /* bits in each */
	__u32 any; /* bits set in either */
	__u32 reserved;
	__u64 seen[2][FLOW_WORDS]; /* that were sent, by a bit each: estimates how many are new */
	__u64 passed[2][PASSED_WORDS]; /* that passed, by PASSED_BITS each (Bloom): they need no leave to begin */
};

/* What is held to packets and to new flows per second at once. */
struct pace {
	struct bucket packets;
	struct bucket flows;
};

/* State of one vport, shared by all CPUs under the lock. */
struct state {
	struct bpf_spin_lock lock;
	__u32 reserved;
	__u64 limit_since_ns; /* which limit its buckets belong to */
	struct bucket limit_bytes;
	struct pace limit_pace;
	struct pace contract_pace;
	struct bucket received; /* packets */
	__u64 flood_since_ns; /* first packet that met the condition, of the newest episode */
	__u64 flood_last_ns;
	struct window current;
	struct window closed[HISTORY];
	struct destination destinations[DESTINATIONS];
	struct flows flows;
};

/* A limit on what the tenant sends beside TCP and address resolution, or on everything.
 * Without renewal it ends by itself. */
struct limit {
	__u64 rate; /* bytes per second, at most 1.8e10; 0 with burst 0 = drop */
	__u64 burst; /* bytes, at most 1.8e10 */
	__u64 expires_ns; /* CLOCK_MONOTONIC; 0 or past = no limit */
	__u64 since_ns; /* CLOCK_MONOTONIC when it was first set; renewals keep it */
	__u64 packets; /* packets per second; 0 = any number */
	__u64 new_flows; /* flows begun per second; 0 = any number */
	__u32 class; /* HTB class that shapes the bytes in place of the policer; 0 = police */
	__u32 everything; /* not 0 = on all that the vport sends, TCP and address resolution too */
	__u8 id[16]; /* UUID of the action */
	/* policed counters of the vport when the limit was first set */
	__u64 policed_bytes_before;
	__u64 policed_packets_before;
};

/* What a vport may do for good: its contract. */
struct contract {
	__u64 packets; /* packets per second; 0 = any number */
	__u64 new_flows; /* TCP and UDP flows begun per second; 0 = any number */
	__u64 receive_packets; /* packets per second to it; 0 = any number */
	__u64 guarantee; /* bytes per second that it may send in any case; 0 = unknown */
	__u64 mac_pairs; /* pairs of MAC addresses that it may begin per second; 0 = any number */
	__u32 pairs; /* not 0 while vport_pairs may hold limits of this vport */
	__u32 everything; /* not 0 while vport_limit may hold a limit on all it sends */
};

/* A limit on everything that a vport sends to one destination, or on all it sends. Without
 * renewal it ends by itself. */
struct pair {
	__u64 rate; /* bytes per second */
	__u64 burst; /* bytes */
	__u64 start; /* bytes that pass at once when it is new */
	__u64 packets; /* packets per second; 0 = any number */
	__u64 expires_ns; /* CLOCK_MONOTONIC; 0 or past = no limit */
	__u64 since_ns; /* CLOCK_MONOTONIC when it was first set; renewals keep it */
	__u32 class; /* HTB class that shapes in place of the policer; 0 = police */
	__u32 reserved;
};

/* The limits of a vport to destinations. User space alone writes them. What is searched for
 * each packet lies together. */
struct pairs {
	__u32 places; /* that are searched, the first ones */
	__u32 destination[DESTINATION_LIMITS]; /* as the parser folds it; of each place */
	__u32 reserved;
	struct pair to[EVERYTHING + 1];
};

/* What a limit to a destination has let pass. The programs alone write it, under the lock of
 * the vport's state. */
struct spent {
	__u64 since_ns; /* which limit it belongs to */
	struct bucket bytes;
	struct bucket packets;
	__u64 offered_bytes;
	__u64 dropped_bytes;
	__u64 dropped_packets;
};

struct pairs_spent {
	struct spent to[EVERYTHING + 1];
};

/* The limit of a class that shapes, for what never comes to an uplink's scheduler:
 * frames to a guest of the same node are policed where they are delivered. */
struct shape {
	struct bpf_spin_lock lock;
	__u32 reserved;
	__u64 rate; /* bytes per second; 0 = none */
	__u64 burst; /* bytes */
	struct bucket bytes;
};

/* The pairs of MAC addresses between which a vport sends, see mac.h. */
struct mac_pairs {
	struct bpf_spin_lock lock;
	__u32 reserved;
	struct bucket begun;
	__u32 seen[PAIR_SETS][PAIR_WAYS];
};

/* When a window counts as a flood; set by user space. */
struct settings {
	__u32 min_packets; /* UDP packets to one destination in a window */
	__u32 min_ports; /* bits of port spread */
	__u32 max_reply_percent;
	__u32 reserved;
	__u64 quiet_ns; /* a flood after so long a pause is a new episode */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOW_IFINDEX);
	__type(key, __u32);
	__type(value, __u32); /* slot + 1; 0 = not a vport */
} vport_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* resized at load */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} vport_high SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct counters);
} vport_count SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct state);
} vport_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct limit);
} vport_limit SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} vport_set SEC(".maps");

/* What no tenant knows: hashes that begin with it cannot be aimed at. It is drawn once, when
 * the map is made, since programs of two loads must agree on a state that they share. */
struct seed {
	__u64 add;
	__u64 times; /* odd */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seed);
} vport_seed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct contract);
} vport_contract SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct mac_pairs);
} vport_mac_pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct pairs);
} vport_pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32);
	__type(value, struct pairs_spent);
} vport_pairs_spent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHAPES);
	__type(key, __u32); /* minor number of the class, less FIRST_SHAPE */
	__type(value, struct shape);
} vport_shape SEC(".maps");

/* Which interface has which slot; kept by user space alone. */
struct place {
	__u32 slot;
	__u32 hook; /* enum Hook of the Go package */
	__u64 since_ns; /* CLOCK_MONOTONIC when the slot was given */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* resized at load */
	__type(key, __u32); /* ifindex */
	__type(value, struct place);
} vport_place SEC(".maps");

#endif
