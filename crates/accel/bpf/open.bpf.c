// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Handles connections that are already open, one network namespace at a time. The kernel holds a
 * connection's lock while the program handles it, and may show a connection twice.
 */
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "give.h"
#include "open.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct order);
} order SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turned);
} turned SEC(".maps");

/* include/net/tcp_states.h: states that may still send, and listeners, whose new connections
 * inherit the algorithm. */
#define TCP_ESTABLISHED 1
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11
#define SENDING                                                                                    \
	(1 << TCP_ESTABLISHED | 1 << TCP_FIN_WAIT1 | 1 << TCP_CLOSE_WAIT | 1 << TCP_LAST_ACK |     \
	 1 << TCP_CLOSING)

static __always_inline void describe(struct connection *connection, const struct tcp_sock *tp)
{
	const struct sock_common *common = &tp->inet_conn.icsk_inet.sk.__sk_common;
	u32 address[4] = {};

	connection->port = common->skc_num;
	if (common->skc_family == AF_INET) {
		address[2] = bpf_htonl(0xffff);
		address[3] = common->skc_daddr;
	} else {
		address[0] = common->skc_v6_daddr.in6_u.u6_addr32[0];
		address[1] = common->skc_v6_daddr.in6_u.u6_addr32[1];
		address[2] = common->skc_v6_daddr.in6_u.u6_addr32[2];
		address[3] = common->skc_v6_daddr.in6_u.u6_addr32[3];
	}
	__builtin_memcpy(connection->address, address, sizeof(address));
}

/* Whether a rule gave the connection this algorithm, and no program has chosen another algorithm
 * since. */
static __always_inline bool is_given(const struct flow *flow, const char *name)
{
	return flow && flow->rule && is_same(name, flow->given);
}

/* Whether an open connection keeps its algorithm. For the kernel, an algorithm that a rule gave or
 * that an earlier installation put back is also named, so the system's default does not count as
 * named here. tcpa without storage belongs to an earlier installation. */
static __always_inline bool is_kept_open(const struct rule *rule, struct tcp_sock *tp,
					 const struct order *order, const struct flow *flow,
					 const char *name)
{
	if (is_given(flow, name) || (is_tcpa(name) && !flow))
		return false;
	return is_kept(rule, tp, name) && !is_same(name, order->otherwise);
}

/* Returns the socket if the socket is in the order's scope and in one of `states`. */
static __always_inline struct tcp_sock *ours(struct bpf_iter__tcp *ctx, const struct order *order,
					     struct connection *connection, u32 states)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;

	if (!common || common->skc_state > TCP_CLOSING || !(states & 1 << common->skc_state))
		return NULL;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return NULL;
	describe(connection, tp);
	list_cgroups(connection, tp);
	return within_cgroup(connection, order->scope) ? tp : NULL;
}

static __always_inline bool choose(struct tcp_sock *tp, const char *name)
{
	char copy[CA_NAME];

	__builtin_memcpy(copy, name, sizeof(copy));
	return copy[0] && !is_tcpa(copy) &&
	       !bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, copy, sizeof(copy));
}

/* Gives the connection its earlier algorithm, or the system's algorithm if the earlier algorithm
 * is unknown or gone. tcpa frees the storage when it is replaced. */
static __always_inline void put_back(struct tcp_sock *tp, const struct flow *flow,
				     const struct order *order, struct turned *turned)
{
	if ((flow && choose(tp, flow->before)) || choose(tp, order->otherwise)) {
		bpf_sk_storage_delete(&flows, tp);
		turned->put_back++;
	} else {
		turned->refused++;
	}
}

/* Applies the policy to open connections as to new connections. A socket that chose its algorithm
 * itself keeps its algorithm. */
SEC("iter/tcp")
int adopt(struct bpf_iter__tcp *ctx)
{
	struct connection connection = {};
	char name[CA_NAME] = {};
	const struct order *now;
	const struct rule *rule;
	struct turned *count;
	struct tcp_sock *tp;
	struct flow *flow;
	u32 zero = 0;

	now = bpf_map_lookup_elem(&order, &zero);
	count = bpf_map_lookup_elem(&turned, &zero);
	if (!now || !count)
		return 0;
	tp = ours(ctx, now, &connection, SENDING);
	if (!tp)
		return 0;
	rule = rule_of(&connection);
	flow = bpf_sk_storage_get(&flows, tp, NULL, 0);
	bpf_getsockopt(tp, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	if (rule && rule->accelerate) {
		/* tcpa needs its storage, an algorithm of the kernel needs none. */
		if (is_same(name, rule->algorithm) && (flow || !is_tcpa(name)))
			return 0;
		if (is_kept_open(rule, tp, now, flow, name))
			count->kept++;
		else if (give(tp, tp, rule, 1 + connection.found))
			count->given++;
		else
			count->refused++;
	} else if (is_given(flow, name)) {
		put_back(tp, flow, now, count);
	}
	return 0;
}

/* Handles all connections with tcpa or with an algorithm that a rule gave, and listeners whose new
 * connections would inherit tcpa. */
SEC("iter/tcp")
int abandon(struct bpf_iter__tcp *ctx)
{
	struct connection connection = {};
	char name[CA_NAME] = {};
	const struct order *now;
	struct turned *count;
	struct tcp_sock *tp;
	struct flow *flow;
	u32 zero = 0;

	now = bpf_map_lookup_elem(&order, &zero);
	count = bpf_map_lookup_elem(&turned, &zero);
	if (!now || !count)
		return 0;
	tp = ours(ctx, now, &connection, SENDING | 1 << TCP_LISTEN);
	if (!tp)
		return 0;
	flow = bpf_sk_storage_get(&flows, tp, NULL, 0);
	bpf_getsockopt(tp, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	if (is_tcpa(name) || is_given(flow, name))
		put_back(tp, flow, now, count);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
