// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which connections are CAQM's: a rule fits, SYN and SYN-ACK both bear the sign, and go through interfaces that
 * put tags on and take them off. The sign is an experimental option of TCP (RFC 6994): kind 254, "CAQM", the TPID.
 * The end that was called takes the connection for CAQM's when the first tag has come, so that a way on which tags
 * get lost, or that leads through another interface, is not one.
 */
#include "caqm_kernel.h"
#include "caqm_maps.h"
#include "caqm_tag.h"
#include "describe.h"

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define FLAG_SYN 0x02U
#define FLAG_ACK 0x10U

#define OPTION_EXPERIMENTAL 254
#define OPTION_BYTES 8
/* "CAQM" */
#define OPTION_MAGIC 0x4341514dU
/* A network that swallows SYNs with it gets them without in the end. */
#define OFFERS 2U
/* A handshake takes no longer. */
#define EXPECTED_NS (60ULL * 1000000000U)

struct option {
	u8 kind;
	u8 length;
	__be16 magic[2];
	__be16 tpid;
};

static __always_inline bool is_wanted(struct bpf_sock_ops *ops, struct cgroup *cgroup)
{
	struct connection connection = {};
	const struct rule *rule;

	describe(&connection, ops);
	connection.cgroup = (u64)cgroup;
	rule = rule_of(&connection);
	return rule && rule->accelerate;
}

static __always_inline struct cgroup *cgroup_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
}

static __always_inline bool is_place(struct bpf_sock_ops *ops, u32 ifindex)
{
	struct caqm_place place = { .ifindex = ifindex };

	place.netns = bpf_get_netns_cookie(ops);
	return bpf_map_lookup_elem(&places, &place) != NULL;
}

/* The one that a connection's packets leave by. */
static __always_inline u32 interface_of(struct sock *sk)
{
	struct sock___routed *routed = (void *)sk;

	return BPF_CORE_READ(routed, sk_dst_cache, dev, ifindex);
}

static __always_inline bool has_sign(struct bpf_sock_ops *ops, u64 where)
{
	const struct caqm_settings *settings = network_settings();
	u32 magic = bpf_htonl(OPTION_MAGIC);
	struct option option = { .kind = OPTION_EXPERIMENTAL, .length = 6 };

	__builtin_memcpy(option.magic, &magic, sizeof(magic));
	if (bpf_load_hdr_opt(ops, &option, sizeof(option), where) != sizeof(option))
		return false;
	return settings && option.length == OPTION_BYTES && bpf_ntohs(option.tpid) == settings->tpid;
}

/* Whether what leaves now is a SYN or a SYN-ACK with the sign. */
static __always_inline bool offers(struct bpf_sock_ops *ops)
{
	struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ops);
	struct sock *sk = BPF_CORE_READ(kernel, sk);
	struct inet_connection_sock___retrying *retrying = (void *)sk;
	struct sock_common___request *request = (void *)sk;
	u32 flags = ops->skb_tcp_flags;

	if (!(flags & FLAG_SYN))
		return false;
	if (!(flags & FLAG_ACK))
		return BPF_CORE_READ(retrying, icsk_retransmits) < OFFERS;
	if (!has_sign(ops, BPF_LOAD_HDR_OPT_TCP_SYN))
		return false;
	return is_place(ops, BPF_CORE_READ(kernel, syn_skb, skb_iif)) &&
	       is_wanted(ops, BPF_CORE_READ(request, skc_listener, sk_cgrp_data.cgroup));
}

static __always_inline void sign(struct bpf_sock_ops *ops)
{
	const struct caqm_settings *settings = network_settings();
	u32 magic = bpf_htonl(OPTION_MAGIC);
	struct option option = { .kind = OPTION_EXPERIMENTAL, .length = OPTION_BYTES };

	if (!settings)
		return;
	__builtin_memcpy(option.magic, &magic, sizeof(magic));
	option.tpid = bpf_htons(settings->tpid);
	bpf_store_hdr_opt(ops, &option, sizeof(option), 0);
}

static __always_inline bool is_expected(struct bpf_sock_ops *ops, u32 *info)
{
	struct caqm_pending key = {};
	const struct caqm_first *first;
	bool fresh;

	key.netns = bpf_get_netns_cookie(ops);
	key.remote_port = ops->remote_port >> 16;
	key.local_port = bpf_htons(ops->local_port);
	if (ops->family == AF_INET) {
		key.remote[2] = bpf_htonl(0xffff);
		key.remote[3] = ops->remote_ip4;
		key.local[2] = bpf_htonl(0xffff);
		key.local[3] = ops->local_ip4;
	} else {
		const volatile u32 *remote = ops->remote_ip6, *local = ops->local_ip6;

		key.remote[0] = remote[0];
		key.remote[1] = remote[1];
		key.remote[2] = remote[2];
		key.remote[3] = remote[3];
		key.local[0] = local[0];
		key.local[1] = local[1];
		key.local[2] = local[2];
		key.local[3] = local[3];
	}
	first = bpf_map_lookup_elem(&pending, &key);
	if (!first)
		return false;
	fresh = bpf_ktime_get_ns() - first->at_ns < EXPECTED_NS;
	*info = first->info;
	bpf_map_delete_elem(&pending, &key);
	return fresh;
}

static __always_inline bool has_algorithm(struct bpf_sock_ops *ops, const char *wanted, u32 length)
{
	char name[CA_NAME] = {};

	if (bpf_getsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return false;
	for (u32 at = 0; at < length; at++)
		if (name[at] != wanted[at])
			return false;
	return true;
}

static __always_inline void agree(struct bpf_sock_ops *ops, struct bpf_sock *sk, bool heard, u32 info)
{
	const struct caqm_settings *settings = network_settings();
	struct caqm_totals *count = totals_here();
	struct caqm_record *record;
	char name[CA_NAME];

	if (!settings)
		return;
	record = bpf_sk_storage_get(&records, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!record)
		return;
	record->tpid = settings->tpid;
	record->heard = heard;
	record->to_question = !settings->trusts_path;
	if (heard && tag_asks(info)) {
		record->unanswered = 1;
		record->to_answer = 1;
	}
	__builtin_memcpy(name, settings->algorithm, sizeof(name));
	if (bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
		bpf_sk_storage_delete(&records, sk);
		return;
	}
	if (count)
		count->negotiated++;
}

/* As if nothing had been asked; but another accelerator's connection stays that. */
static __always_inline void decline(struct bpf_sock_ops *ops)
{
	struct caqm_totals *count = totals_here();
	char reno[] = "reno";

	if (count)
		count->declined++;
	if (!has_algorithm(ops, "tcpa", 5))
		bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}

static __always_inline void established(struct bpf_sock_ops *ops, bool called)
{
	struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ops);
	u32 flags = ops->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = ops->sk;
	struct sock *full = BPF_CORE_READ(kernel, sk);
	u32 info = 0;

	/* Nothing more is written into headers. */
	if (flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
		bpf_sock_ops_cb_flags_set(ops, flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	/* What goes through other interfaces stays as it is. */
	if (!sk || !is_place(ops, BPF_CORE_READ(kernel, skb, skb_iif)) || !is_wanted(ops, cgroup_of(full)))
		return;
	if (called ? is_expected(ops, &info) : is_place(ops, interface_of(full)) && has_sign(ops, 0))
		agree(ops, sk, called, info);
	else
		decline(ops);
}

SEC("sockops")
int negotiate(struct bpf_sock_ops *ops)
{
	u32 flags = ops->bpf_sock_ops_cb_flags;
	struct bpf_sock_ops_kern *kernel;
	struct sock *sk;

	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		/* Which of its connections are wanted is known when they begin. */
		bpf_sock_ops_cb_flags_set(ops, flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		kernel = bpf_cast_to_kern_ctx(ops);
		sk = BPF_CORE_READ(kernel, sk);
		if (is_place(ops, interface_of(sk)) && is_wanted(ops, cgroup_of(sk)))
			bpf_sock_ops_cb_flags_set(ops, flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		if (!offers(ops))
			break;
		if (ops->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB)
			bpf_reserve_hdr_opt(ops, OPTION_BYTES, 0);
		else
			sign(ops);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(ops, ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB);
		break;
	default:
		break;
	}
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
