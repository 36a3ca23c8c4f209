package s3server

import (
	"errors"
	"path/filepath"
	"runtime"
)

// script returns the script that builds the server.
func script() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("the program does not know where its source is")
	}
	return filepath.Join(filepath.Dir(filepath.Dir(file)), "fetch-s3server.sh"), nil
}
