/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Gives the algorithm to a connection, as its rule says. */
#ifndef WEIR_ACCEL_GIVE_H
#define WEIR_ACCEL_GIVE_H

#include "maps.h"
#include "match.h"

/* include/uapi/linux/tcp.h, bpf.h and socket.h */
#define AF_INET 2
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_RTO_MAX_MS 44
#define TCP_BPF_RTO_MIN 1004

#define TCPA "tcpa"

static __always_inline bool is_caqm(const char *name)
{
	return name[0] == 'c' && name[1] == 'a' && name[2] == 'q' && name[3] == 'm' && !name[4];
}

/* `options` is the context on which this program type may set options, and `sk` the socket that has
 * storage. Options that the kernel refuses stay as they were: the connection works without them. */
static __always_inline bool give(void *options, void *sk, const struct rule *rule, u32 settings)
{
	char name[] = TCPA;
	struct flow *flow;
	int value;

	flow = bpf_sk_storage_get(&flows, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return false;
	flow->rule = settings;
	bpf_getsockopt(options, SOL_TCP, TCP_CONGESTION, flow->before, sizeof(flow->before));
	/* Keep CAQM: both ends agreed on it. */
	if (is_caqm(flow->before) ||
	    bpf_setsockopt(options, SOL_TCP, TCP_CONGESTION, name, sizeof(name) - 1)) {
		bpf_sk_storage_delete(&flows, sk);
		return false;
	}
	if (rule->rto_min_us) {
		value = rule->rto_min_us;
		bpf_setsockopt(options, SOL_TCP, TCP_BPF_RTO_MIN, &value, sizeof(value));
	}
	if (rule->rto_max_ms) {
		value = rule->rto_max_ms;
		bpf_setsockopt(options, SOL_TCP, TCP_RTO_MAX_MS, &value, sizeof(value));
	}
	return true;
}

#endif
