/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Earlier connections' estimates of the path to a destination. The core decides how far to trust
 * these estimates (tcpa_resume.h).
 */
#ifndef WEIR_ACCEL_MEMORY_H
#define WEIR_ACCEL_MEMORY_H

#include "maps.h"
#include <bpf/bpf_endian.h>

#define AF_INET 2

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

/* Stores the core's estimate of the path. False if the core has measured too little. */
static __always_inline bool remember(const struct sock *sk, const struct flow *flow)
{
	struct cc_memory noted = {};
	struct memory memory = {};
	struct place place;

	if (!tcpa_note(&flow->tcpa, &noted))
		return false;
	memory.rate = noted.rate;
	memory.min_rtt_us = noted.min_rtt_us;
	memory.at_ns = bpf_ktime_get_ns();
	place_of(sk, &place);
	bpf_map_update_elem(&paths, &place, &memory, BPF_ANY);
	return true;
}

/* Reads the memory of the path. Ignores memories that are `age_s` seconds old or older. */
static __always_inline void recall(const struct sock *sk, u32 age_s, struct cc_memory *recalled)
{
	const struct memory *memory;
	struct place place;
	u64 age;

	place_of(sk, &place);
	memory = bpf_map_lookup_elem(&paths, &place);
	if (!memory)
		return;
	age = cc_less(bpf_ktime_get_ns(), memory->at_ns) / 1000000000U;
	if (age >= age_s)
		return;
	recalled->rate = memory->rate;
	recalled->min_rtt_us = memory->min_rtt_us;
	recalled->age_s = age;
}

#endif
