/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that touch nothing but their arguments, errno least of all: for a child that shares the agent's memory
 * (agent/exec/spawn.c). */
#pragma once

#include <sys/syscall.h>

/* The kernel's answer: -errno when it failed. */
#if defined(__x86_64__)
static inline long rawcall(long number, long a, long b, long c, long d)
{
    long r;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return r;
}
#elif defined(__aarch64__)
static inline long rawcall(long number, long a, long b, long c, long d)
{
    register long call __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(call), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#else
#error "add the system call instruction of this processor here"
#endif
