// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 *
 * Counts the packets that the kernel drops in one network namespace, by reason, and by interface,
 * function and connection. At a high rate the program counts only a sample of the packets by
 * interface, function and connection.
 *
 */
#include "uapi.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define REASONS 512	  /* more than any kernel has; the last entry counts all others */
#define PLACES 4096	  /* 0.5 MB; further places are counted without their connection */
#define BARE 1024	  /* places without a connection; a remote sender cannot add to them */
#define EACH 256	  /* for each reason and CPU, the places of this many packets are all counted */
#define SAMPLE 64	  /* afterwards one of this many packets stands for all; a power of two */
#define PROTOCOL_IP 0x0800
#define PROTOCOL_IPV6 0x86dd
#define TCP 6
#define UDP 17
#define OFFSET 0x1fff /* mask of a fragment's offset */

/* accel/src/drops.rs reads this layout. Addresses and ports are in network byte order. */
struct place {
	u64 location;
	u32 reason;
	u32 interface;
	u16 family; /* 4, 6, or 0 without an address */
	u8 protocol;
	u8 unused;
	u16 from_port;
	u16 to_port;
	u32 from[4];
	u32 to[4];
};

_Static_assert(sizeof(struct place) == 56, "without padding");

/*
 * accel/src/drops.rs finds the offsets. libbpf could find them (CO-RE), but libbpf checks and
 * indexes all types of the kernel first, which takes more CPU time than the rest of the start.
 */
struct settings {
	u32 namespace; /* inode of the network namespace */
	u32 is_first;  /* 1: packets of an unknown namespace count here, too */
	/* Offsets in bytes. */
	u32 skb_dev;
	u32 skb_sk;
	u32 skb_iif;
	u32 skb_protocol;
	u32 skb_network_header;
	u32 skb_head;
	u32 sock_net;
	u32 device_index;
	u32 device_net;
	u32 net_inode;
	u64 net; /* the namespace's address, once a packet of the namespace was dropped */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, u32);
	__type(value, u64);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLACES);
	__type(key, struct place);
	__type(value, u64);
} places SEC(".maps");

/* Drop locations without a connection, which the program counts even if `places` is full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BARE);
	__type(key, struct place);
	__type(value, u64);
} bare SEC(".maps");

struct ipv4_head {
	u8 version_and_length;
	u8 service;
	__be16 length;
	__be16 id;
	__be16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	u32 from;
	u32 to;
};

struct ipv6_head {
	u32 flow;
	__be16 length;
	u8 next;
	u8 hops;
	u32 from[4];
	u32 to[4];
};

/* Each of the next three functions returns 0 if the address is wrong. */
static __always_inline u64 pointer_at(u64 address, u32 offset)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)(address + offset));
	return value;
}

static __always_inline u32 word_at(u64 address, u32 offset)
{
	u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)(address + offset));
	return value;
}

static __always_inline u16 half_at(u64 address, u32 offset)
{
	u16 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)(address + offset));
	return value;
}

static __always_inline void add_connection(struct place *place, u64 skb, struct settings *here)
{
	u64 network = pointer_at(skb, here->skb_head) + half_at(skb, here->skb_network_header);
	unsigned char *head = (unsigned char *)network;
	u16 protocol = half_at(skb, here->skb_protocol);
	u16 ports[2];
	u32 length;

	if (protocol == __builtin_bswap16(PROTOCOL_IP)) {
		struct ipv4_head ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), head))
			return;
		if (ip.version_and_length >> 4 != 4)
			return;
		place->family = 4;
		place->protocol = ip.protocol;
		place->from[0] = ip.from;
		place->to[0] = ip.to;
		if (ip.fragment & __builtin_bswap16(OFFSET))
			return;
		length = (ip.version_and_length & 15) * 4;
	} else if (protocol == __builtin_bswap16(PROTOCOL_IPV6)) {
		struct ipv6_head ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), head))
			return;
		if ((ip.flow & __builtin_bswap32(0xf0000000)) != __builtin_bswap32(0x60000000))
			return;
		place->family = 6;
		place->protocol = ip.next;
		__builtin_memcpy(place->from, ip.from, sizeof(ip.from));
		__builtin_memcpy(place->to, ip.to, sizeof(ip.to));
		length = sizeof(ip);
	} else {
		return;
	}
	if (place->protocol != TCP && place->protocol != UDP)
		return;
	if (bpf_probe_read_kernel(ports, sizeof(ports), head + length))
		return;
	place->from_port = ports[0];
	place->to_port = ports[1];
}

/* Adds `packets` to a drop location; returns 0 if the map is full. */
static __always_inline int add_in(void *map, struct place *place, u64 packets)
{
	u64 *known = bpf_map_lookup_elem(map, place);

	if (known) {
		__sync_fetch_and_add(known, packets);
		return 1;
	}
	if (!bpf_map_update_elem(map, place, &packets, BPF_NOEXIST))
		return 1;
	/* Another CPU may have added the drop location. */
	known = bpf_map_lookup_elem(map, place);
	if (!known)
		return 0;
	__sync_fetch_and_add(known, packets);
	return 1;
}

static __always_inline void add_to(struct place *place, u64 packets)
{
	if (place->family && add_in(&places, place, packets))
		return;
	place->family = 0;
	place->protocol = 0;
	place->from_port = 0;
	place->to_port = 0;
	__builtin_memset(place->from, 0, sizeof(place->from));
	__builtin_memset(place->to, 0, sizeof(place->to));
	add_in(&bare, place, packets);
}

/* Whether `net` is the namespace in which the program counts. The namespace's address stays the
 * same while a process is in the namespace, and a comparison of addresses needs no further read. */
static __always_inline int is_own(u64 net, struct settings *here)
{
	if (here->net)
		return net == here->net;
	if (word_at(net, here->net_inode) != here->namespace)
		return 0;
	here->net = net;
	return 1;
}

static __always_inline int count(u64 skb, u64 location, u32 reason, u64 sk)
{
	struct place place = {};
	struct settings *here;
	u32 zero = 0, slot = reason < REASONS ? reason : REASONS - 1;
	u64 *counted, packets = 1, dev, net = 0;

	here = bpf_map_lookup_elem(&settings, &zero);
	if (!here)
		return 0;
	/* A UDP socket keeps other data in `dev`; a read of a wrong address gives 0. */
	dev = pointer_at(skb, here->skb_dev);
	if (dev)
		net = pointer_at(dev, here->device_net);
	if (!net) {
		dev = 0;
		net = sk ? pointer_at(sk, here->sock_net) : 0;
	}
	if (!net) {
		sk = pointer_at(skb, here->skb_sk);
		net = sk ? pointer_at(sk, here->sock_net) : 0;
	}
	if (net ? !is_own(net, here) : !here->is_first)
		return 0;
	counted = bpf_map_lookup_elem(&reasons, &slot);
	if (!counted)
		return 0;
	*counted += 1;
	if (*counted > EACH) {
		if (*counted & (SAMPLE - 1))
			return 0;
		packets = SAMPLE;
	}
	place.location = location;
	place.reason = reason;
	place.interface = dev ? word_at(dev, here->device_index) : word_at(skb, here->skb_iif);
	add_connection(&place, skb, here);
	add_to(&place, packets);
	return 0;
}

SEC("raw_tp/kfree_skb")
int BPF_PROG(drops, u64 skb, u64 location, u32 reason)
{
	return count(skb, location, reason, 0);
}

/* Linux 6.11 and later name the receiving socket as well. */
SEC("raw_tp/kfree_skb")
int BPF_PROG(drops_of_sockets, u64 skb, u64 location, u32 reason, u64 sk)
{
	return count(skb, location, reason, sk);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
