package vport

import "time"

// filled returns a bucket that lets n bytes or packets pass at once.
func filled(n, now uint64) vportBucket {
	return vportBucket{Tokens: n * uint64(time.Second), RefilledNs: now}
}

// carriedOver returns a bucket for a limit that is renewed: what was in it stays there,
// as far as the burst has room for it.
func carriedOver(b vportBucket, burst uint64) vportBucket {
	b.Tokens = min(b.Tokens, burst*uint64(time.Second))
	return b
}
