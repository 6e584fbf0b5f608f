/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Of include/uapi/linux/bpf.h what is used here. These numbers and this layout never change. */
#ifndef WEIR_ACCEL_UAPI_H
#define WEIR_ACCEL_UAPI_H

#include "types.h"

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_ANY 0
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB 4
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB 5

struct bpf_sock;

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4; /* network byte order, as all addresses here */
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port; /* network byte order */
	__u32 local_port; /* host byte order */
	__u32 unused[24];
	__u64 bytes_received;
	__u64 bytes_acked;
	struct bpf_sock *sk;
};

_Static_assert(offsetof(struct bpf_sock_ops, sk) == 184, "as the kernel has it");

#endif
