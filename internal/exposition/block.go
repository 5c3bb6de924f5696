package exposition

import "bytes"

// Block is a part of a page that is the same at many scrapes, as it was written.
type Block struct {
	parts  []blockPart
	series int
}

type blockPart struct {
	family *Family
	text   []byte
}

// Record lets emit write samples and returns them, for Repeat. It returns nil where a
// limit kept some out or summed ports: that is to be looked at anew each time.
func (p *Page) Record(emit func()) *Block {
	whole := p.cut == 0 && (p.limiter == nil || len(p.limiter.pooled) == 0)
	before, lengths := p.series, make(map[string]int, len(p.buffers))
	for name, b := range p.buffers {
		lengths[name] = len(*b)
	}
	emit()
	if !whole || p.cut > 0 {
		return nil
	}
	block := &Block{series: p.series - before}
	for _, f := range p.order {
		name := f.metric.Name
		if text := (*p.buffers[name])[lengths[name]:]; len(text) > 0 {
			block.parts = append(block.parts, blockPart{f, bytes.Clone(text)})
		}
	}
	return block
}

// Repeat writes a block again. Where there is no room for all of it, it writes nothing
// and returns false.
func (p *Page) Repeat(b *Block) bool {
	if p.left >= 0 && p.left < b.series {
		return false
	}
	if p.left > 0 {
		p.left -= b.series
	}
	p.series += b.series
	for _, part := range b.parts {
		buffer := p.buffer(part.family)
		*buffer = append(*buffer, part.text...)
	}
	return true
}
