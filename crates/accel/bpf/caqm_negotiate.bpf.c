// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 *
 * Negotiates CAQM for a connection. Conditions: a rule matches, SYN and SYN-ACK both offer CAQM,
 * both packets pass interfaces that add and remove tags, and both packets pass a port that supports
 * CAQM.
 *
 * The offer is an experimental option of TCP (RFC 6994): kind 254, "CAQM", and the two words of a
 * tag, which are the TPID and a word that asks the ports on the path whether they support CAQM
 * (crates/wire/src/caqm/offer.rs). No packet carries a tag before both ends can know that a port
 * supports CAQM. The SYN-ACK reports the answer of the ports on the SYN's path. The tag of the
 * handshake's last packet reports the answer of the ports on the SYN-ACK's path.
 *
 * The passive end accepts CAQM when the tag of the handshake's last packet has arrived. So the
 * passive end does not accept a path that loses tags or that leads through another interface. If
 * no port on the path of an end's data supports CAQM, the end sends as Reno, without tags, and
 * still answers the peer's tags.
 *
 * The offer may also be two of TCP's reserved bits, as in the reference kernel: caqm_tags.bpf.c
 * writes and reads the bits, and this program decides whether to offer and to accept
 * (docs/reference/caqm-wire.md).
 *
 */
#include "caqm_kernel.h"
#include "caqm_maps.h"
#include "caqm_tag.h"
#include "caqm_window.h"
#include "describe.h"

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define FLAG_SYN 0x02U
#define FLAG_ACK 0x10U

#define OPTION_EXPERIMENTAL 254
#define OPTION_BYTES 10
/* "CAQM" */
#define OPTION_MAGIC 0x4341514dU
/* Retransmitted SYNs omit the offer after this many attempts, in case a network drops SYNs with an
 * offer. */
#define OFFERS 2U
/* The longest time that a handshake may take. */
#define EXPECTED_NS (60ULL * 1000000000U)

struct option {
	u8 kind;
	u8 length;
	__be16 magic[2];
	__be16 tpid;
	__be16 info;
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

/* Returns the index of the interface that sends a connection's packets. */
static __always_inline u32 interface_of(struct sock *sk)
{
	struct sock___routed *routed = (void *)sk;
	struct dst_entry *route = routed ? routed->sk_dst_cache : NULL;

	return route ? route->dev->ifindex : 0;
}

/* Reads the peer's offer, with its answers about both directions of the path. */
static __always_inline bool read_offer(struct bpf_sock_ops *ops, u64 where, u32 *info)
{
	const struct caqm_settings *settings = network_settings();
	u32 magic = bpf_htonl(OPTION_MAGIC);
	struct option option = { .kind = OPTION_EXPERIMENTAL, .length = 6 };

	__builtin_memcpy(option.magic, &magic, sizeof(magic));
	if (bpf_load_hdr_opt(ops, &option, OPTION_BYTES, where) != OPTION_BYTES || !settings)
		return false;
	*info = bpf_ntohs(option.info);
	return option.length == OPTION_BYTES && bpf_ntohs(option.tpid) == settings->tpid &&
	       *info >> TAG_KIND_SHIFT == settings->kind;
}

static __always_inline bool is_answered(u32 offer)
{
	return (offer & OFFER_QUESTION) != OFFER_QUESTION;
}

/* Whether the packet being sent is a SYN or a SYN-ACK with an offer; `echo` is the SYN-ACK's report
 * about the SYN. */
static __always_inline bool offers(struct bpf_sock_ops *ops, u32 *echo)
{
	const struct caqm_settings *settings = network_settings();
	struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ops);
	struct sock *sk = kernel->sk;
	struct inet_connection_sock___retrying *retrying = (void *)sk;
	struct sock_common___request *request = (void *)sk;
	u32 flags = ops->skb_tcp_flags, asked = 0;

	if (!(flags & FLAG_SYN) || !settings || !(settings->negotiation & NEGOTIATE_OPTION))
		return false;
	if (!(flags & FLAG_ACK))
		return BPF_CORE_READ(retrying, icsk_retransmits) < OFFERS;
	if (!read_offer(ops, BPF_LOAD_HDR_OPT_TCP_SYN, &asked))
		return false;
	*echo = is_answered(asked) ? OFFER_ECHO : 0;
	return is_place(ops, BPF_CORE_READ(kernel, syn_skb, skb_iif)) &&
	       is_wanted(ops, BPF_CORE_READ(request, skc_listener, sk_cgrp_data.cgroup));
}

static __always_inline void offer(struct bpf_sock_ops *ops, u32 echo)
{
	const struct caqm_settings *settings = network_settings();
	u32 magic = bpf_htonl(OPTION_MAGIC);
	struct option option = { .kind = OPTION_EXPERIMENTAL, .length = OPTION_BYTES };
	u32 info;

	if (!settings)
		return;
	info = settings->trusts_path ? TAG_REQUEST : OFFER_QUESTION;
	__builtin_memcpy(option.magic, &magic, sizeof(magic));
	option.tpid = bpf_htons(settings->tpid);
	option.info = bpf_htons(settings->kind << TAG_KIND_SHIFT | info | echo);
	bpf_store_hdr_opt(ops, &option, OPTION_BYTES, 0);
}

/* Whether the tag arrived with the packet that completed the handshake. Another host that has
 * guessed addresses and ports may have sent a tag earlier. */
static __always_inline bool began(const struct caqm_first *first, struct sock *sk)
{
	struct tcp_sock___numbers *tp = (void *)sk;
	struct caqm_window window = {};

	window.received = BPF_CORE_READ(tp, rcv_nxt);
	window.offered = BPF_CORE_READ(tp, rcv_wnd);
	window.acked = BPF_CORE_READ(tp, snd_una);
	return caqm_may_begin(&window, first->sequence, first->acknowledgement);
}

static __always_inline void key_of(struct bpf_sock_ops *ops, struct caqm_pending *into)
{
	struct caqm_pending key = {};

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
	*into = key;
}

static __always_inline bool is_expected(struct bpf_sock_ops *ops, struct sock *sk,
					struct caqm_first *found)
{
	struct caqm_totals *count = totals_here();
	struct caqm_pending key;
	const struct caqm_first *first;
	bool fresh, ours;

	key_of(ops, &key);
	first = bpf_map_lookup_elem(&pending, &key);
	if (!first)
		return false;
	fresh = bpf_ktime_get_ns() - first->at_ns < EXPECTED_NS;
	ours = began(first, sk);
	*found = *first;
	bpf_map_delete_elem(&pending, &key);
	if (!ours && count)
		count->implausible++;
	return fresh && ours;
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

/* Continue without CAQM: use Reno, but leave tcpa on a connection that has tcpa. */
static __always_inline void be_plain(struct bpf_sock_ops *ops)
{
	char reno[] = "reno";

	if (!has_algorithm(ops, "tcpa", 5))
		bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}

/* Record that both ends use CAQM. `ahead`: a port on the path of this end's data supports CAQM;
 * `goes_ahead`: a port on the path of the peer's data supports CAQM. */
static __always_inline struct caqm_record *agree(struct bpf_sock_ops *ops, struct bpf_sock *sk,
						 bool called, bool ahead, bool goes_ahead)
{
	const struct caqm_settings *settings = network_settings();
	struct caqm_totals *count = totals_here();
	struct caqm_record *record;
	char name[CA_NAME];

	if (!settings)
		return NULL;
	record = bpf_sk_storage_get(&records, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!record)
		return NULL;
	record->tpid = settings->tpid;
	record->heard = called;
	record->goes_ahead = goes_ahead;
	if (ahead) {
		__builtin_memcpy(name, settings->algorithm, sizeof(name));
		if (bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
			bpf_sk_storage_delete(&records, sk);
			return NULL;
		}
	} else {
		record->sender.params = settings->params;
		record->running = 1;
		be_plain(ops);
	}
	if (count) {
		count->negotiated++;
		count->gave_up += !ahead;
	}
	return record;
}

/* Record that both ends use CAQM, after reserved bits have shown that both ends support CAQM. Ports
 * do not answer reserved bits, so the path counts as a path with a port that supports CAQM. */
static __always_inline void agree_by_bits(struct bpf_sock_ops *ops, struct bpf_sock *sk,
					  const struct caqm_first *first)
{
	struct caqm_record *record = agree(ops, sk, first != NULL, true, false);
	struct caqm_totals *count = totals_here();

	if (!record)
		return;
	record->by_bits = 1;
	if (count)
		count->by_bits++;
	/* The handshake's last packet may carry data with a request. */
	if (first && first->info & TAG_REQUEST) {
		caqm_owe(&record->receiver, &record->sender.params, tag_more(first->info),
			 tag_fewer(first->info), first->segments);
		record->to_answer = 1;
	}
}

static __always_inline void decline(struct bpf_sock_ops *ops, bool offered)
{
	struct caqm_totals *count = totals_here();

	if (count) {
		count->declined += !offered;
		count->gave_up += offered;
	}
	be_plain(ops);
}

/* A SYN-ACK is about to leave: decide whether it carries the server's bit. This end answers an
 * offer by option with the option. */
static __always_inline void consent(struct bpf_sock_ops *ops)
{
	const struct caqm_settings *settings = network_settings();
	struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ops);
	struct sock_common___request *request = (void *)kernel->sk;
	struct caqm_asked *by_client;
	struct caqm_pending key;
	u32 info = 0;

	if (!settings || !(settings->negotiation & NEGOTIATE_BITS) ||
	    (ops->skb_tcp_flags & (FLAG_SYN | FLAG_ACK)) != (FLAG_SYN | FLAG_ACK))
		return;
	key_of(ops, &key);
	by_client = bpf_map_lookup_elem(&asked, &key);
	if (!by_client || by_client->accepted)
		return;
	if (settings->negotiation & NEGOTIATE_OPTION &&
	    read_offer(ops, BPF_LOAD_HDR_OPT_TCP_SYN, &info))
		return;
	if (is_place(ops, BPF_CORE_READ(kernel, syn_skb, skb_iif)) &&
	    is_wanted(ops, BPF_CORE_READ(request, skc_listener, sk_cgrp_data.cgroup)))
		by_client->accepted = 1;
}

/* Whether the passive end answered an offer by reserved bits. */
static __always_inline bool has_consented(struct bpf_sock_ops *ops)
{
	const struct caqm_asked *by_client;
	struct caqm_pending key;
	bool accepted, fresh;

	key_of(ops, &key);
	by_client = bpf_map_lookup_elem(&asked, &key);
	if (!by_client)
		return false;
	accepted = by_client->accepted;
	fresh = bpf_ktime_get_ns() - by_client->at_ns < EXPECTED_NS;
	bpf_map_delete_elem(&asked, &key);
	return accepted && fresh;
}

/* Whether the peer answered this end's offer by reserved bits. */
static __always_inline bool has_consent(struct bpf_sock *sk)
{
	const struct caqm_offer *offer = bpf_sk_storage_get(&offered, sk, NULL, 0);
	bool answered;

	if (!offer)
		return false;
	answered = offer->answered;
	bpf_sk_storage_delete(&offered, sk);
	return answered;
}

static __always_inline void established(struct bpf_sock_ops *ops, bool called)
{
	struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ops);
	u32 flags = ops->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = ops->sk;
	struct sock *full = kernel->sk;
	const struct caqm_settings *settings;
	struct caqm_first first = {};
	bool by_bits;
	u32 info = 0;

	/* A connection that this end began without an offer needs no further check. Most
	 * connections begin without an offer. */
	if (!called && !(flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		return;
	/* Stop the kernel's calls for further header options. */
	if (flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
		bpf_sock_ops_cb_flags_set(ops, flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	if (!sk)
		return;
	settings = network_settings();
	by_bits = settings && settings->negotiation & NEGOTIATE_BITS &&
		  (called ? has_consented(ops) : has_consent(sk));
	/* Leave connections through other interfaces alone. */
	if (!is_place(ops, kernel->skb->skb_iif) || !is_wanted(ops, cgroup_of(full)))
		return;
	if (called) {
		if (!is_expected(ops, full, &first))
			decline(ops, false);
		else if (by_bits)
			agree_by_bits(ops, sk, &first);
		else
			agree(ops, sk, true, tag_goes_ahead(first.info), false);
	} else if (by_bits && is_place(ops, interface_of(full))) {
		agree_by_bits(ops, sk, NULL);
	} else if (is_place(ops, interface_of(full)) && read_offer(ops, 0, &info)) {
		if ((info & OFFER_ECHO) || is_answered(info))
			agree(ops, sk, false, info & OFFER_ECHO, is_answered(info));
		else
			decline(ops, true);
	} else {
		decline(ops, false);
	}
}

/* Sets the flag for header options, which marks a socket that offers CAQM, even if the offer
 * travels in reserved bits. */
static __always_inline void begin_offer(struct bpf_sock_ops *ops)
{
	const struct caqm_settings *settings = network_settings();
	u32 flags = ops->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = ops->sk;

	bpf_sock_ops_cb_flags_set(ops, flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	if (sk && settings && settings->negotiation & NEGOTIATE_BITS)
		bpf_sk_storage_get(&offered, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

SEC("sockops")
int negotiate(struct bpf_sock_ops *ops)
{
	u32 flags = ops->bpf_sock_ops_cb_flags, echo = 0;
	struct bpf_sock_ops_kern *kernel;
	struct sock *sk;

	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		/* The program applies the rules to each connection when the connection begins. */
		bpf_sock_ops_cb_flags_set(ops, flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		kernel = bpf_cast_to_kern_ctx(ops);
		sk = kernel->sk;
		if (is_place(ops, interface_of(sk)) && is_wanted(ops, cgroup_of(sk)))
			begin_offer(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		consent(ops);
		if (offers(ops, &echo))
			bpf_reserve_hdr_opt(ops, OPTION_BYTES, 0);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		if (offers(ops, &echo))
			offer(ops, echo);
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
