/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface between a host and an algorithm: the C side of crates/cc/src/contract.rs.
 *
 * The build compiles these headers twice: for BPF, where the kernel is the host, and natively. They
 * therefore have no globals, no floating point, no signed division, no function pointers and no
 * loop without a small fixed bound. A division by zero gives zero in both builds.
 */
#ifndef WEIR_CC_CONTRACT_H
#define WEIR_CC_CONTRACT_H

#ifndef __bpf__
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#define CC_INLINE static inline __attribute__((always_inline))

/* An acknowledgement; all sizes are in bytes. */
struct cc_ack {
	u64 now_us;
	u64 delivered; /* since the connection began, this ACK included */
	u64 prior_delivered; /* `delivered` when the newest acknowledged packet was sent */
	u32 rtt_us; /* new sample; 0: none */
	u32 interval_us; /* duration of the rate sample; 0: no sample */
	u32 acked;
	u32 lost; /* newly marked as lost */
	u32 inflight; /* after this acknowledgement */
	u8 app_limited;
	u8 in_recovery;
	u8 unused[2];
};

/* An earlier connection's estimate of the path. */
struct cc_memory {
	u64 rate; /* bytes a second; 0: no memory */
	u32 min_rtt_us;
	u32 age_s;
};

/* Input of the init call, before the first packet. */
struct cc_path {
	u64 now_us;
	u32 mss;
	u32 handshake_rtt_us; /* 0: unknown */
	u32 seed;
	u32 unused;
	struct cc_memory memory;
};

struct cc_out {
	u64 pacing_rate; /* bytes a second */
	u32 cwnd; /* bytes */
	u32 unused;
};

CC_INLINE u64 cc_div(u64 dividend, u64 divisor)
{
	return divisor ? dividend / divisor : 0;
}

CC_INLINE u64 cc_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

CC_INLINE u64 cc_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* a - b, or zero if b is larger */
CC_INLINE u64 cc_less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

/* Return `count` plus one, but at most `most`. */
CC_INLINE u8 cc_count(u8 count, u32 most)
{
	return (u8)cc_min(count + 1U, most);
}

/* Gains and shares are in 1/1024. */
#define CC_ONE 1024U

CC_INLINE u64 cc_scale(u64 value, u32 gain)
{
	/* Multiply in two parts, so that the product fits for any value below 2^54. */
	return (value >> 10) * gain + (((value & 1023U) * gain) >> 10);
}

/* Bounds so that products with a time in us fit 64 bits: 2^40 bytes a second are 8.8 Tbit/s, 2^23
 * us are 8.4 s. */
#define CC_MOST_RATE (1ULL << 40)
#define CC_MOST_TIME_US ((1ULL << 23) - 1)

/* Bytes delivered at a rate within a time. */
CC_INLINE u64 cc_bytes_in(u64 bytes_per_second, u64 time_us)
{
	u64 rate = cc_min(bytes_per_second, CC_MOST_RATE);
	u64 time = cc_min(time_us, CC_MOST_TIME_US);

	return rate * time / 1000000U;
}

/* Bytes a second; zero if no time passed. */
CC_INLINE u64 cc_rate(u64 bytes, u64 time_us)
{
	return cc_div(bytes * 1000000U, time_us);
}

#endif
