/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Gives a connection the algorithm that its rule names. */
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

static __always_inline bool is_tcpa(const char *name)
{
	return name[0] == 't' && name[1] == 'c' && name[2] == 'p' && name[3] == 'a' && !name[4];
}

static __always_inline bool is_same(const char *name, const char *other)
{
	for (u32 at = 0; at < CA_NAME; at++) {
		if (name[at] != other[at])
			return false;
		if (!name[at])
			return true;
	}
	return true;
}

static __always_inline bool is_caqm(const char *name)
{
	return name[0] == 'c' && name[1] == 'a' && name[2] == 'q' && name[3] == 'm' && !name[4];
}

static __always_inline bool is_reno(const char *name)
{
	return name[0] == 'r' && name[1] == 'e' && name[2] == 'n' && name[3] == 'o' && !name[4];
}

/* Whether the connection keeps the algorithm that its program named. */
static __always_inline bool is_kept(const struct rule *rule, const struct tcp_sock *tp,
				    const char *name)
{
	if (rule->flags & RULE_NAMED_TOO || !is_named(tp))
		return false;
	return !(rule->flags & RULE_AFTER_CAQM && is_reno(name));
}

/* Applies a rule to a connection. `options` is the context on which this program type may set
 * options, and `sk` the socket that has storage. Ignores options that the kernel refuses: the
 * connection works without these options. */
static __always_inline bool give(void *options, void *sk, const struct rule *rule, u32 settings)
{
	char name[CA_NAME], now[CA_NAME] = {}, before[CA_NAME];
	struct flow *flow;
	bool own;
	int value;

	__builtin_memcpy(name, rule->algorithm, sizeof(name));
	own = is_tcpa(name);
	bpf_getsockopt(options, SOL_TCP, TCP_CONGESTION, now, sizeof(now));
	/* Keep CAQM if both ends agreed on CAQM. */
	if (is_caqm(now))
		return false;
	__builtin_memcpy(before, now, sizeof(before));
	flow = bpf_sk_storage_get(&flows, sk, NULL, 0);
	if (flow && flow->rule && is_same(now, flow->given))
		__builtin_memcpy(before, flow->before, sizeof(before));
	/* tcpa needs the storage when it begins, and frees the storage when it is replaced. Therefore set
	 * another algorithm before the storage is created, and tcpa afterwards. */
	if (!own && bpf_setsockopt(options, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return false;
	flow = bpf_sk_storage_get(&flows, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return false;
	flow->rule = settings;
	__builtin_memcpy(flow->before, before, sizeof(before));
	__builtin_memcpy(flow->given, name, sizeof(name));
	if (own && bpf_setsockopt(options, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
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
