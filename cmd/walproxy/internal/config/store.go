package config

import (
	"walproxy/archive/stores"
)

// StoreAddress is where an archive lies: file:///dir or s3://bucket/prefix. Empty: nowhere.
type StoreAddress string

func (a StoreAddress) check() error {
	if a == "" {
		return nil
	}
	s, err := stores.Open(string(a), stores.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}
