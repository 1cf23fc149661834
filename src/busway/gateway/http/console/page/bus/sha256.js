/**
 * SHA-256 and HMAC over bytes. A page that came by http from another host than this machine has no WebCrypto, and has
 * to sign all the same; so there is one way for all pages, and it is this one. A signature takes some microseconds.
 */

const ROUNDS = roundConstants();

/** The first 32 bits of the fraction of cube roots of the first 64 primes. */
function roundConstants() {
  const found = [];
  for (let number = 2; found.length < 64; number++) {
    let isPrime = true;
    for (let part = 2; part * part <= number; part++) if (number % part === 0) isPrime = false;
    if (isPrime) found.push(((Math.cbrt(number) % 1) * 2 ** 32) | 0);
  }
  return Int32Array.from(found);
}

const START = [
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

const turned = (word, bits) => (word >>> bits) | (word << (32 - bits));

/** One block of 64 bytes into the state. */
function mix(state, view, at) {
  const words = new Int32Array(64);
  for (let n = 0; n < 16; n++) words[n] = view.getInt32(at + 4 * n);
  for (let n = 16; n < 64; n++) {
    const a = words[n - 15];
    const b = words[n - 2];
    const s0 = turned(a, 7) ^ turned(a, 18) ^ (a >>> 3);
    const s1 = turned(b, 17) ^ turned(b, 19) ^ (b >>> 10);
    words[n] = (words[n - 16] + s0 + words[n - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let n = 0; n < 64; n++) {
    const s1 = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const one = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[n] + words[n]) | 0;
    const s0 = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, n) => (state[n] = (state[n] + word) | 0));
}

/**
 * @param {Uint8Array} data
 * @returns {Uint8Array} 32 bytes
 */
export function sha256(data) {
  const blocks = Math.ceil((data.length + 9) / 64);
  const padded = new Uint8Array(blocks * 64);
  padded.set(data);
  padded[data.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor((data.length * 8) / 2 ** 32));
  view.setUint32(padded.length - 4, (data.length * 8) >>> 0);
  const state = [...START];
  for (let at = 0; at < padded.length; at += 64) mix(state, view, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, n) => digest.setInt32(4 * n, word));
  return new Uint8Array(digest.buffer);
}

/**
 * @param {Uint8Array} key
 * @param {Uint8Array} data
 * @returns {Uint8Array} 32 bytes
 */
export function hmacSha256(key, data) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const inner = sha256(joined(block.map((byte) => byte ^ 0x36), data));
  return sha256(joined(block.map((byte) => byte ^ 0x5c), inner));
}

function joined(first, second) {
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
