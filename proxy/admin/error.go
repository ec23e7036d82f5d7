package admin

import (
	"fmt"
	"net/http"
)

// Error is what a request fails with, at the server and at the client.
type Error struct {
	Status  int    `json:"-"` // of HTTP
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// errorBody is how an error travels.
type errorBody struct {
	Error *Error `json:"error"`
}

func badRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: fmt.Sprintf(format, args...)}
}

func (e *Error) hint(text string) *Error {
	e.Hint = text
	return e
}
