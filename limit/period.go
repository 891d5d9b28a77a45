package limit

import "time"

// Period is a span of the calendar for which a quota holds. The zero value is none.
type Period uint8

// The periods of a quota.
const (
	// Day begins with each day of the calendar.
	Day Period = iota + 1
	// Week begins with each Monday.
	Week
	// Month begins with the first day of each month.
	Month
)

// String returns the word for the period that configuration and tables use.
func (p Period) String() string {
	switch p {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	default:
		return ""
	}
}

// ParsePeriod reads the word for a period. The error lists those allowed.
func ParsePeriod(word string) (Period, error) {
	for p := Day; p <= Month; p++ {
		if word == p.String() {
			return p, nil
		}
	}
	return 0, UnknownWord("period", word, Day.String(), Week.String(), Month.String())
}

// Span is one period of the calendar and the one after it, from Begin until before
// End, and from there until before NextEnd.
type Span struct{ Begin, End, NextEnd time.Time }

// Span returns the period that now lies in, by the calendar of a place. A period
// begins at the first instant of its first day: that is not midnight where a clock
// is set forward at midnight, and the first of two where one is set back. So periods
// follow each other without a gap, and none is entered again.
func (p Period) Span(now time.Time, in *time.Location) Span {
	year, month, day := now.In(in).Date()
	first := p.first(date{year, month, day})
	s := Span{Begin: first.begins(in)}
	first, s.End = p.after(s.Begin, first, in)
	for !s.End.After(now) {
		// The clock was set back over midnight: the day is not entered again.
		s.Begin = s.End
		first, s.End = p.after(s.Begin, first, in)
	}
	_, s.NextEnd = p.after(s.End, first, in)
	return s
}

// after returns the first day of the next period that begins after begin, and when
// it does. A place that moves over the date line may leave out a day.
func (p Period) after(begin time.Time, first date, in *time.Location) (date, time.Time) {
	for {
		first = p.next(first)
		if begins := first.begins(in); begins.After(begin) {
			return first, begins
		}
	}
}

// date is a day of the calendar.
type date struct {
	year  int
	month time.Month
	day   int
}

// utc is the day's midnight, as if it were one of UTC.
func (d date) utc() time.Time { return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC) }

// plus returns the day so many days later.
func (d date) plus(days int) date {
	year, month, day := d.utc().AddDate(0, 0, days).Date()
	return date{year, month, day}
}

// first returns the first day of the period that a day is in.
func (p Period) first(d date) date {
	switch p {
	case Week:
		return d.plus(-(int(d.utc().Weekday()) + 6) % 7)
	case Month:
		return date{d.year, d.month, 1}
	default:
		return d
	}
}

// next returns the first day of the period after the one that begins with first.
func (p Period) next(first date) date {
	switch p {
	case Week:
		return first.plus(7)
	case Month:
		return date{first.year, first.month + 1, 1}
	default:
		return first.plus(1)
	}
}

// farthest is more than any place's clock is before or after that of UTC.
const farthest = 26 * time.Hour

// begins returns the first instant of the day at a place, or where the day is left
// out there, that of the next one. time.Date is no help: where midnight is missing
// or comes twice it does not say which instant it returns.
func (d date) begins(in *time.Location) time.Time {
	midnight := d.utc()
	for at := midnight.Add(-farthest).In(in); ; {
		_, offset := at.Zone()
		_, until := at.ZoneBounds()
		begins := midnight.Add(-time.Duration(offset) * time.Second)
		if begins.Before(at) {
			begins = at
		}
		if until.IsZero() || begins.Before(until) {
			return begins.In(in)
		}
		at = until.In(in)
	}
}
