package recompress

import "walproxy/recompress/model"

// CostObserver is told what each record took: see model.Observer.
type CostObserver = model.Observer

// ObserveCosts makes the Writer tell o what each record that the model codes took; other codecs do not know.
func (w *Writer) ObserveCosts(o CostObserver) {
	if e, ok := w.best.encoder.(*modelEncoder); ok {
		e.model.Observe(o)
	}
}

// ObserveCosts makes the Sealer tell o what each record that the model codes took, the windows behind this call.
func (s *Sealer) ObserveCosts(o CostObserver) {
	s.observe = o
	for key, w := range s.writers {
		if !key.alone {
			w.ObserveCosts(o)
		}
	}
}
