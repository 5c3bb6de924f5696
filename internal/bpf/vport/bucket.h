/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The token bucket of all limits. */
#ifndef VIGIA_VPORT_BUCKET_H
#define VIGIA_VPORT_BUCKET_H

#define NS_PER_S 1000000000ULL

/* What may pass now: bytes, packets or flows, times NS_PER_S so that refilling is
 * exact. Rate and burst are the limit's, at most 1.8e10 each: then nothing overflows. */
struct bucket {
	__u64 tokens;
	__u64 refilled_ns;
};

static __always_inline void fill(struct bucket *b, __u64 burst, __u64 now)
{
	b->tokens = burst * NS_PER_S;
	b->refilled_ns = now;
}

/* take refills a bucket, with at most what it gains in a second, and takes n from it
 * if so much is there. Called under the lock of who owns the bucket: another CPU may
 * have refilled it with a later clock, and then it gained nothing since. */
static __always_inline int take(struct bucket *b, __u64 rate, __u64 burst, __u64 n, __u64 now)
{
	__u64 full = burst * NS_PER_S, cost = n * NS_PER_S, tokens = b->tokens;

	if (now > b->refilled_ns) {
		__u64 elapsed = now - b->refilled_ns;
		__u64 gain = rate * (elapsed > NS_PER_S ? NS_PER_S : elapsed);

		b->refilled_ns = now;
		tokens = tokens < full && gain < full - tokens ? tokens + gain : full;
	}
	if (tokens < cost) {
		b->tokens = tokens;
		return 0;
	}
	b->tokens = tokens - cost;
	return 1;
}

/* give_back undoes a take, when something else does not let the packet pass. */
static __always_inline void give_back(struct bucket *b, __u64 n)
{
	b->tokens += n * NS_PER_S;
}

#endif
