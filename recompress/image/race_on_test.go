//go:build race

package image_test

// raceEnabled tells that sync.Pool drops items at random, as it does under the race detector.
const raceEnabled = true
