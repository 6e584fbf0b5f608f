/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the rule of a connection: the first matching rule of the policy in force. */
#ifndef WEIR_ACCEL_MATCH_H
#define WEIR_ACCEL_MATCH_H

#include "kernel.h"
#include "rules.h"

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

/* Maximum number of levels of control groups, from the root. A rule for a deeper group matches
 * nothing. */
#define LEVELS 16

struct connection {
	u64 cgroups[LEVELS]; /* ids of the control group and of its ancestors, if `listed` */
	u64 cgroup; /* the kernel's pointer to the control group */
	u64 address[2]; /* the peer's address */
	u32 port; /* the local port */
	u32 first; /* index of the first rule of the policy in force */
	u32 found; /* index of the connection's rule; NONE if no rule matches */
	u32 listed;
};

#define NONE 0xffffffffU

static __always_inline bool within_prefix(const struct connection *connection,
					  const struct rule *rule)
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

/* Lists the ids of the cgroup's ancestors by level, and of the cgroup itself at the end
 * (cgroup_is_descendant(), linux/cgroup.h). */
static __always_inline void list_ancestors(struct connection *connection, struct cgroup *cgroup)
{
	struct cgroup *ancestor;
	u32 deepest;
	u64 list;

	connection->listed = 1;
	__builtin_memset(connection->cgroups, 0, sizeof(connection->cgroups));
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

static __always_inline void list_cgroups(struct connection *connection, struct tcp_sock *tp)
{
	list_ancestors(connection, tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup);
}

/* Test the most expensive condition last: the port or the address decides most connections. */
static __always_inline bool fits(struct connection *connection, const struct rule *rule)
{
	if (rule->port && rule->port != connection->port)
		return false;
	if (!within_prefix(connection, rule))
		return false;
	if (!rule->cgroup)
		return true;
	if (!connection->listed)
		list_ancestors(connection, (struct cgroup *)connection->cgroup);
	return within_cgroup(connection, rule->cgroup);
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

/* Returns the connection's rule. NULL: no rule matches, and `found` is NONE. */
static __always_inline const struct rule *rule_of(struct connection *connection)
{
	const struct active *now;
	u32 zero = 0;
	u64 both;

	connection->found = NONE;
	now = bpf_map_lookup_elem(&active, &zero);
	if (!now)
		return NULL;
	/* Read `set` and `count` at once: a single store changes both fields to another policy. */
	both = *(volatile const u64 *)now;
	connection->first = (both & 1) * ACCEL_RULES;
	bpf_loop(cc_min(both >> 32, ACCEL_RULES), try_rule, connection, 0);
	return bpf_map_lookup_elem(&rules, &connection->found);
}

#endif
