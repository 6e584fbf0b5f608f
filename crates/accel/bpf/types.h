/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The integer types that libbpf's headers expect. System headers differ between distributions, and
 * the compiler does not find system headers for the target `bpf`. */
#ifndef WEIR_ACCEL_TYPES_H
#define WEIR_ACCEL_TYPES_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#endif
