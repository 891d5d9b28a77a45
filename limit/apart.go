package limit

// Grant is what one bucket gave, and who decided that.
type Grant struct {
	// Granted is how many units were taken from the bucket: 0 is a refusal.
	Granted int64

	// Source says who decided.
	Source Source
}

// Grant returns what the request's bucket number i gave, counted from 0. Where
// the buckets were not asked apart, that is the same for all of them.
func (d *Decision) Grant(i int) Grant {
	if d.Each == nil {
		return Grant{d.Granted, d.Source}
	}
	return d.Each[i]
}

// Part returns the decision on the request's bucket number i as one on a request
// for that bucket alone.
func (d *Decision) Part(i int) Decision {
	grant := d.Grant(i)
	return Decision{Granted: grant.Granted, Source: grant.Source, First: d.At(i)}
}

// NewApart returns the decision on a request that asks n buckets apart, at least
// one, to be filled by Put.
func NewApart(n int) Decision {
	return Decision{Rest: make([]State, n-1), Each: make([]Grant, n)}
}

// Put makes a decision on one bucket that on bucket number i of d, which NewApart
// has made. The order in which they are put does not matter.
func (d *Decision) Put(i int, part Decision) {
	d.Each[i] = Grant{part.Granted, part.Source}
	if i == 0 {
		d.First, d.Source = part.First, part.Source
	} else {
		d.Rest[i-1] = part.First
	}
	d.Granted = d.Each[0].Granted
	for _, grant := range d.Each {
		d.Granted = min(d.Granted, grant.Granted)
	}
}

// Splits reports whether the request asks several buckets apart. One bucket is
// asked in the same way, whether apart or not.
func (r *Request) Splits() bool { return r.Apart && len(r.Buckets) > 1 }

// Only returns the request for bucket number i alone.
func (r *Request) Only(i int) Request {
	one := *r
	one.Buckets, one.Apart = r.Buckets[i:i+1:i+1], false
	return one
}

// TakeEach decides a request that asks its buckets apart by one call of take for
// each, for a layer that has no better way. It ends at the first error and returns
// it; what was taken before that is lost.
func (r *Request) TakeEach(take func(Request) (Decision, error)) (Decision, error) {
	all := NewApart(len(r.Buckets))
	for i := range r.Buckets {
		part, err := take(r.Only(i))
		if err != nil {
			return Decision{}, err
		}
		all.Put(i, part)
	}
	return all, nil
}
