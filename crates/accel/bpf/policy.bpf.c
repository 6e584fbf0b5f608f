// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which connections are accelerated: decided once, when a connection is established, by the first rule
 * that fits. */
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "give.h"

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

static __noinline int decide(struct bpf_sock_ops *ops)
{
	struct connection connection;
	struct bpf_sock *sk = ops->sk;
	const struct rule *rule;
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
	if (rule && rule->accelerate)
		give(ops, sk, rule, 1 + connection.found);
	return 0;
}

SEC("sockops")
int policy(struct bpf_sock_ops *ops)
{
	/* The kernel asks nine times a connection, so what is none of ours ends here. */
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		decide(ops);
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
