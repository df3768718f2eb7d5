/* SPDX-License-Identifier: MIT */
/* wide.h - private: loops over vectors, compiled for several instruction sets.
 *
 * WIDEST before a function has it compiled for each of them; which one runs is chosen at
 * start. Such functions hold operations element by element, or sums whose order is written
 * out, so that the bits do not depend on the choice. They are static, and no two files have one
 * of the same name: clang makes symbols of them that all files see.
 */
#ifndef COMM_WIDE_H
#define COMM_WIDE_H

/* The choice runs before a sanitizer is ready, so not with one. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                     \
    __has_feature(memory_sanitizer)
#define WITH_SANITIZER
#endif
#endif
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&         \
    !defined(__SANITIZE_THREAD__) && !defined(WITH_SANITIZER)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* Says that iterations are independent although pointers may be the same. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Sixteen numbers at once, lane by lane; compilers break them up for narrower machines. LANES_AT
 * reads them from anywhere in an array. */
enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int lanes_int __attribute__((vector_size(LANES * sizeof(int))));
typedef float lanes_at
    __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
#define LANES_AT(from) (*(const lanes_at *)(from))

#endif /* COMM_WIDE_H */
