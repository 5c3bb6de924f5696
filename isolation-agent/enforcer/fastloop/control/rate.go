package control

import "time"

// rate returns what the senders of a congested class may have together. While
// another class that is in use gets less than its guarantee, that is the guarantee:
// a TCP sender must be given the room that it would grow into. Otherwise, and once
// the other is known to want no more, it is what the others leave, with a tenth of
// theirs for growth.
func (r *Receiver) rate(now time.Time, id uint32, w *window) float64 {
	guarantee := float64(w.config.GuaranteeBytesPerSecond)
	var others float64
	for other, o := range r.classes {
		if other == id {
			continue
		}
		_, left, _ := o.mean(samples)
		if now.Sub(o.usedAt) < pause && left < 0.98*float64(o.config.GuaranteeBytesPerSecond) && !o.content(now, left) {
			return guarantee
		}
		others += left
	}
	return max(guarantee, r.limit-1.1*others)
}
