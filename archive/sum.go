package archive

// castagnoli is the polynomial of CRC-32C with its bits reversed: bit 31 stands for x^0.
const castagnoli = 0x82f63b78

// combineSums returns the CRC-32C of a then b, given those of both and the length of b in bytes. A CRC of a followed by n zero
// bytes is that of a times x^(8n), modulo the polynomial; initial value and final inversion cancel out.
func combineSums(a, b uint32, bytes uint64) uint32 {
	power := uint32(1) << 31 >> 8 // x^8: one byte
	for ; bytes != 0; bytes >>= 1 {
		if bytes&1 != 0 {
			a = multiply(a, power)
		}
		power = multiply(power, power)
	}
	return a ^ b
}

// multiply multiplies two polynomials over GF(2), modulo the polynomial of CRC-32C.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 { // the terms of a from x^0 on, and b times each
		if a>>31 != 0 {
			product ^= b
		}
		b = b>>1 ^ castagnoli&-(b&1)
	}
	return product
}
