/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fields of the kernel's structs of network namespaces and devices that Weir's programs use. */
#ifndef WEIR_ACCEL_NET_H
#define WEIR_ACCEL_NET_H

#include "uapi.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	u64 net_cookie;
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

#pragma clang attribute pop

#endif
