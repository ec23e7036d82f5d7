// Package work bounds what judging one call may cost. The cost is counted, not timed, so that a call has the same verdict
// on every machine. It is pure.
package work

// PerCall is the budget of one call, in units of about a nanosecond each on a machine of 2026.
const PerCall = 24_000_000

// perStep is what one step of a matcher costs.
const perStep = 3

// Budget is what is left for one call; several judges share it. The zero value and nil have nothing left: a call that is
// judged with them is refused. It is not safe for concurrent use.
type Budget struct{ left int }

// New gives a budget of so many units.
func New(units int) *Budget { return &Budget{units} }

// Spend takes units off and reports whether there were enough. Once there were not, there are never again.
func (b *Budget) Spend(units int) bool {
	if b == nil || b.left <= 0 || units < 0 {
		return false
	}
	b.left -= units
	return b.left > 0
}

// Over reports whether the budget is used up. What has not been looked at by then must not pass.
func (b *Budget) Over() bool { return b == nil || b.left <= 0 }

// Empty uses the budget up: something was met that cannot be looked at.
func (b *Budget) Empty() {
	if b != nil {
		b.left = 0
	}
}

// Steps gives how many steps of a matcher are left, for Used.
func (b *Budget) Steps() int {
	if b.Over() {
		return 0
	}
	return b.left / perStep
}

// Used takes the steps of a matcher off.
func (b *Budget) Used(steps int) bool { return b.Spend(steps*perStep + 1) }
