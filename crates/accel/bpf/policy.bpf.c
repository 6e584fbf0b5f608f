// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which connections are accelerated: decided once, when a connection is established, by the first rule
 * that fits. */
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "maps.h"
#include "rules.h"

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_SNDBUF 7
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_RTO_MAX_MS 44
#define TCP_BPF_RTO_MIN 1004

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * ACCEL_RULES);
	__type(key, u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct active);
} active SEC(".maps");

struct connection {
	struct bpf_sock_ops *ops;
	struct cgroup *cgroup;
	u64 namespace;
	u8 address[16];
	u32 cgroup_level;
	u32 port;
};

static __always_inline bool within_prefix(const u8 *address, const u8 *prefix, u32 bits)
{
	for (u32 i = 0; i < 16; i++) {
		u32 whole = 8 * i;
		u8 mask = 0xff;

		if (bits <= whole)
			return true;
		if (bits < whole + 8)
			mask = 0xff << (whole + 8 - bits);
		if ((address[i] ^ prefix[i]) & mask)
			return false;
	}
	return true;
}

/* A cgroup's ancestors are listed by level, itself last (cgroup_is_descendant() of linux/cgroup.h). */
static __always_inline bool within_cgroup(const struct connection *connection, const struct rule *rule)
{
	struct cgroup *ancestor = NULL;
	u64 at;

	if (!connection->cgroup || rule->cgroup_level > connection->cgroup_level)
		return false;
	at = bpf_core_field_offset(struct cgroup, ancestors) + 8 * rule->cgroup_level;
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)connection->cgroup + at);
	return ancestor && BPF_CORE_READ(ancestor, kn, id) == rule->cgroup;
}

static __always_inline bool fits(const struct connection *connection, const struct rule *rule)
{
	return (!rule->port || rule->port == connection->port) &&
	       (!rule->namespace || rule->namespace == connection->namespace) &&
	       within_prefix(connection->address, rule->address, rule->prefix) &&
	       (!rule->cgroup || within_cgroup(connection, rule));
}

static __always_inline void describe(struct connection *connection, struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp;

	connection->port = ops->local_port;
	connection->namespace = bpf_get_netns_cookie(ops);
	if (ops->family == AF_INET) {
		u32 remote = ops->remote_ip4;

		connection->address[10] = 0xff;
		connection->address[11] = 0xff;
		__builtin_memcpy(&connection->address[12], &remote, 4);
	} else {
		u32 remote[4] = { ops->remote_ip6[0], ops->remote_ip6[1], ops->remote_ip6[2],
				  ops->remote_ip6[3] };

		__builtin_memcpy(connection->address, remote, 16);
	}
	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	connection->cgroup = tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	if (connection->cgroup)
		connection->cgroup_level = BPF_CORE_READ(connection->cgroup, level);
}

/* What the kernel refuses stays as it was: none of it keeps a connection from working. */
static __always_inline void accelerate(struct bpf_sock_ops *ops, const struct rule *rule, u32 settings)
{
	struct bpf_sock *sk = ops->sk;
	struct flow *flow;
	char name[] = "tcpa";
	int value;

	if (!sk)
		return;
	flow = bpf_sk_storage_get(&flows, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return;
	flow->rule = settings;
	if (bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name) - 1)) {
		bpf_sk_storage_delete(&flows, sk);
		return;
	}
	if (rule->rto_min_us) {
		value = rule->rto_min_us;
		bpf_setsockopt(ops, SOL_TCP, TCP_BPF_RTO_MIN, &value, sizeof(value));
	}
	if (rule->rto_max_ms) {
		value = rule->rto_max_ms;
		bpf_setsockopt(ops, SOL_TCP, TCP_RTO_MAX_MS, &value, sizeof(value));
	}
	if (rule->send_buffer) {
		value = rule->send_buffer;
		bpf_setsockopt(ops, SOL_SOCKET, SO_SNDBUF, &value, sizeof(value));
	}
}

SEC("sockops")
int policy(struct bpf_sock_ops *ops)
{
	struct connection connection = {};
	struct active *now;
	u32 zero = 0, first, count;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	now = bpf_map_lookup_elem(&active, &zero);
	if (!now)
		return 1;
	/* Both at once: they become another policy's in one store. */
	u64 both = *(volatile u64 *)now;

	first = (both & 1) * ACCEL_RULES;
	count = both >> 32;
	describe(&connection, ops);
	for (u32 i = 0; i < ACCEL_RULES; i++) {
		u32 key = first + i;
		struct rule *rule;

		if (i >= count)
			break;
		rule = bpf_map_lookup_elem(&rules, &key);
		if (!rule)
			break;
		if (!fits(&connection, rule))
			continue;
		if (rule->accelerate)
			accelerate(ops, rule, 1 + key);
		break;
	}
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
