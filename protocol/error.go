package protocol

import "fmt"

// Error is what a PostgreSQL server sends in an ErrorResponse. Whoever refuses a client builds one, so that the client sees
// the SQLSTATE and the words that a stock server would use.
type Error struct {
	Severity string // "ERROR" or "FATAL"
	Code     string // SQLSTATE, five characters
	Message  string
	Detail   string
	Hint     string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s (SQLSTATE %s)", e.Severity, e.Message, e.Code)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Errorf returns an Error of severity ERROR: the command fails, the session goes on.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Severity: "ERROR", Code: code, Message: fmt.Sprintf(format, args...)}
}

// Fatalf returns an Error of severity FATAL: the session ends.
func Fatalf(code, format string, args ...any) *Error {
	return &Error{Severity: "FATAL", Code: code, Message: fmt.Sprintf(format, args...)}
}

// SQLSTATEs that a walsender raises.
//
// Source: PostgreSQL src/backend/utils/errcodes.txt (13-18).
const (
	CodeUnableToConnect       = "08001"
	CodeConnectionFailure     = "08006"
	CodeProtocolViolation     = "08P01"
	CodeFeatureNotSupported   = "0A000"
	CodeInvalidParameterValue = "22023"
	CodeInFailedTransaction   = "25P02"
	CodeInvalidAuthorization  = "28000"
	CodeInvalidPassword       = "28P01"
	CodeUndefinedDatabase     = "3D000"
	CodeInsufficientPrivilege = "42501"
	CodeSyntaxError           = "42601"
	CodeInvalidName           = "42602"
	CodeNameTooLong           = "42622"
	CodeUndefinedObject       = "42704"
	CodeDuplicateObject       = "42710"
	CodeDiskFull              = "53100"
	CodeTooManyConnections    = "53300"
	CodeConfigLimitExceeded   = "53400"
	CodeObjectNotInState      = "55000"
	CodeObjectInUse           = "55006"
	CodeQueryCanceled         = "57014"
	CodeAdminShutdown         = "57P01"
	CodeCannotConnectNow      = "57P03"
	CodeUndefinedFile         = "58P01"
	CodeInternalError         = "XX000"
	CodeDataCorrupted         = "XX001"
)

// TimelineEndError says that a timeline's WAL ends at At and goes on as Next. It is no failure: readers of a timeline meet it
// behind the last byte.
type TimelineEndError struct {
	Timeline, Next Timeline
	At             LSN
}

func (e *TimelineEndError) Error() string {
	return fmt.Sprintf("timeline %d ended at %s; timeline %d follows", e.Timeline, e.At, e.Next)
}
