// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which connections are accelerated: decided once, when a connection is established, by the first rule
 * that fits. */
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "maps.h"
#include "rules.h"

#define AF_INET 2
#define AF_INET6 10
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

#define LEVELS 16

struct connection {
	u64 cgroups[LEVELS]; /* ids of its control group and of those above it */
	u64 address[2]; /* the other end's */
	u32 port; /* its own */
	u32 first; /* rule of the policy in force */
	u32 found; /* its rule; NONE if none fits */
};

#define NONE 0xffffffffU

static __always_inline bool within_prefix(const struct connection *connection, const struct rule *rule)
{
	return !((connection->address[0] ^ rule->address[0]) & rule->mask[0]) &&
	       !((connection->address[1] ^ rule->address[1]) & rule->mask[1]);
}

static __always_inline bool within_cgroup(const struct connection *connection, u64 cgroup)
{
	for (u32 level = 0; level < LEVELS; level++)
		if (connection->cgroups[level] == cgroup)
			return true;
	return false;
}

static __always_inline bool fits(const struct connection *connection, const struct rule *rule)
{
	return (!rule->port || rule->port == connection->port) &&
	       within_prefix(connection, rule) &&
	       (!rule->cgroup || within_cgroup(connection, rule->cgroup));
}

/* A cgroup's ancestors are listed by level, itself last (cgroup_is_descendant() of linux/cgroup.h). */
static __always_inline void list_cgroups(struct connection *connection, struct bpf_sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct cgroup *cgroup, *ancestor;
	u32 deepest;
	u64 list;

	if (!tp)
		return;
	cgroup = tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	if (!cgroup)
		return;
	deepest = BPF_CORE_READ(cgroup, level);
	list = (u64)cgroup + bpf_core_field_offset(struct cgroup, ancestors);
	for (u32 level = 0; level < LEVELS && level <= deepest; level++) {
		ancestor = NULL;
		bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)(list + 8 * level));
		connection->cgroups[level] = BPF_CORE_READ(ancestor, kn, id);
	}
}

static __always_inline void describe(struct connection *connection, struct bpf_sock_ops *ops)
{
	u32 address[4] = {};

	connection->port = ops->local_port;
	if (ops->family == AF_INET) {
		address[2] = bpf_htonl(0xffff);
		address[3] = ops->remote_ip4;
	} else {
		/* One by one: the kernel translates each of these words by itself. */
		const volatile u32 *remote = ops->remote_ip6;

		address[0] = remote[0];
		address[1] = remote[1];
		address[2] = remote[2];
		address[3] = remote[3];
	}
	__builtin_memcpy(connection->address, address, sizeof(address));
}

static long try_rule(u64 index, struct connection *connection)
{
	u32 key = connection->first + index;
	const struct rule *rule = bpf_map_lookup_elem(&rules, &key);

	if (!rule)
		return 1;
	if (!fits(connection, rule))
		return 0;
	connection->found = key;
	return 1;
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
}

SEC("sockops")
int policy(struct bpf_sock_ops *ops)
{
	struct connection connection = { .found = NONE };
	struct bpf_sock *sk = ops->sk;
	const struct active *now;
	const struct rule *rule;
	u32 zero = 0;
	u64 both;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	now = bpf_map_lookup_elem(&active, &zero);
	if (!now || !sk)
		return 1;
	/* Both at once: they become another policy's in one store. */
	both = *(volatile const u64 *)now;
	connection.first = (both & 1) * ACCEL_RULES;
	describe(&connection, ops);
	list_cgroups(&connection, sk);
	bpf_loop(cc_min(both >> 32, ACCEL_RULES), try_rule, &connection, 0);
	rule = bpf_map_lookup_elem(&rules, &connection.found);
	if (rule && rule->accelerate)
		accelerate(ops, rule, 1 + connection.found);
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
