package link

// reversed is the polynomial of CRC-32C with its bits reversed: bit 31 stands for x^0.
const reversed = 0x82f63b78

// powers[i] is x^(8·2^i), modulo the polynomial: what 2^i bytes behind it do to a CRC.
var powers = func() (p [64]uint32) {
	p[0] = 1 << 31 >> 8
	for i := 1; i < len(p); i++ {
		p[i] = multiply(p[i-1], p[i-1])
	}
	return p
}()

// CombineSums returns the CRC-32C of a then b, given those of both and the length of b in bytes.
func CombineSums(a, b uint32, bytes uint64) uint32 { return shift(a, bytes) ^ b }

// shift returns the share of the CRC-32C of a in that of a and as many bytes behind it. A CRC of a followed by n zero bytes is that
// of a times x^(8n), modulo the polynomial; initial value and final inversion cancel out.
func shift(a uint32, bytes uint64) uint32 {
	for i := 0; bytes != 0; bytes >>= 1 {
		if bytes&1 != 0 {
			a = multiply(a, powers[i])
		}
		i++
	}
	return a
}

// multiply multiplies two polynomials over GF(2), modulo the polynomial of CRC-32C.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 { // the terms of a from x^0 on, and b times each
		product ^= b & -(a >> 31)
		b = b>>1 ^ reversed&-(b&1)
	}
	return product
}

// SealRaw completes a raw frame, of which all but the sums is set: RawSum and Sum, in one pass over the WAL.
func (f *Frame) SealRaw() {
	f.RawSum = Checksum(f.Payload)
	f.Sum = CombineSums(f.headSum(), f.RawSum, uint64(len(f.Payload)))
}

// CarriesWAL reports whether the payload of a raw frame is the WAL that RawSum is of, given that Sum is right. Nothing of the
// payload is read: Sum and the header say what its CRC is.
func (f *Frame) CarriesWAL() bool {
	return f.RawLen == uint32(len(f.Payload)) && f.Sum == CombineSums(f.headSum(), f.RawSum, uint64(len(f.Payload)))
}
