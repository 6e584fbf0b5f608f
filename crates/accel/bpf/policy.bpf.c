// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Applies the policy: when a connection is established, the first matching rule decides whether the
 * connection gets an algorithm. */
#include "kernel.h"
#include "describe.h"
#include "give.h"

static __noinline int decide(struct bpf_sock_ops *ops)
{
	struct connection connection;
	struct bpf_sock *sk = ops->sk;
	const struct rule *rule;
	char name[CA_NAME] = {};
	struct tcp_sock *tp;

	if (!sk)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	describe(&connection, ops);
	connection.listed = 0;
	connection.cgroup = (u64)tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	rule = rule_of(&connection);
	if (!rule || !rule->accelerate)
		return 0;
	bpf_getsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	if (!is_kept(rule, tp, name))
		give(ops, sk, rule, 1 + connection.found);
	return 0;
}

SEC("sockops")
int policy(struct bpf_sock_ops *ops)
{
	/* The kernel calls this program nine times for each connection. The program ignores all
	 * events except the two events below. */
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB ||
	    ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		decide(ops);
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
