package work

import "testing"

func TestBudget(t *testing.T) {
	var none *Budget
	if !none.Over() || none.Spend(0) || none.Steps() != 0 || !new(Budget).Over() {
		t.Error("nothing is enough for something")
	}
	none.Empty()
	b := New(10)
	switch {
	case b.Over() || b.Steps() != 3 || !b.Used(2) || b.Steps() != 1:
		t.Errorf("after 7 of 10: %+v", b)
	case b.Spend(3) || !b.Over() || b.Spend(0):
		t.Errorf("after 10 of 10: %+v", b)
	}
	if b = New(10); b.Spend(-100) || b.Spend(10) {
		t.Error("work that is given back")
	}
	b = New(10)
	if b.Empty(); !b.Over() {
		t.Error("an emptied budget is not over")
	}
}
