//go:build !race

package image_test

const raceEnabled = false
