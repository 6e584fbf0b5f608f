/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What earlier connections knew of the path to a place. It is believed by half (careful resume): a first
 * window of half the remembered bandwidth-delay product, and only where the handshake took about as long as
 * it should; the first round trip's acknowledgements then decide.
 */
#ifndef WEIR_ACCEL_MEMORY_H
#define WEIR_ACCEL_MEMORY_H

#include "maps.h"
#include <bpf/bpf_endian.h>

#define AF_INET 2
#define MEMORY_LEAST 100000U /* bytes delivered before an estimate is worth keeping */
#define MEMORY_MOST_SEGMENTS 1000U

static __always_inline void place_of(const struct sock *sk, struct place *place)
{
	u32 address[4] = {};

	if (sk->__sk_common.skc_family == AF_INET) {
		address[2] = bpf_htonl(0xffff);
		address[3] = sk->__sk_common.skc_daddr;
	} else {
		address[0] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[0];
		address[1] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[1];
		address[2] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2];
		address[3] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[3];
	}
	if (!address[0] && !address[1] && address[2] == bpf_htonl(0xffff)) {
		address[3] &= bpf_htonl(0xffffff00);
	} else {
		address[1] &= bpf_htonl(0xffff0000);
		address[2] = 0;
		address[3] = 0;
	}
	place->address[0] = (u64)address[1] << 32 | address[0];
	place->address[1] = (u64)address[3] << 32 | address[2];
}

static __always_inline void remember(const struct sock *sk, const struct flow *flow)
{
	struct memory memory = {};
	struct place place;

	memory.rate = tcpa_rate(&flow->tcpa);
	memory.min_rtt_us = flow->tcpa.min_rtt;
	if (!memory.rate || !memory.min_rtt_us || flow->delivered < MEMORY_LEAST)
		return;
	memory.at_ns = bpf_ktime_get_ns();
	place_of(sk, &place);
	bpf_map_update_elem(&paths, &place, &memory, BPF_ANY);
}

/* Segments; 0: nothing that would help. */
static __always_inline u32 remembered_window(const struct sock *sk, u32 age_s, u32 rtt_us, u32 mss)
{
	const struct memory *memory;
	struct place place;
	u64 segments;

	if (!age_s || !rtt_us)
		return 0;
	place_of(sk, &place);
	memory = bpf_map_lookup_elem(&paths, &place);
	if (!memory || bpf_ktime_get_ns() - memory->at_ns > age_s * 1000000000ULL)
		return 0;
	/* Another path than the one that is remembered. */
	if (rtt_us > 2ULL * memory->min_rtt_us || rtt_us < memory->min_rtt_us / 2)
		return 0;
	segments = cc_div(cc_bytes_in(memory->rate, memory->min_rtt_us) / 2, mss);
	return cc_min(segments, MEMORY_MOST_SEGMENTS);
}

#endif
