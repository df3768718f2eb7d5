/* SPDX-License-Identifier: MIT */
/* face.h - private: what the program and the plug-in tutti-cuda.so are to each other.
 *
 * The plug-in exports one function. It is given what it needs of the program (failure texts and the heap),
 * and gives a row of the table of devices. It uses nothing else of the program that opens it.
 */
#ifndef KERNEL_CUDA_FACE_H
#define KERNEL_CUDA_FACE_H

#include "kernel/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_host {
    /* Keeps a failure's text for this thread. */
    void (*fail)(enum status status, const char *file, int line, const char *text);
    void (*bug)(const char *file, int line, const char *condition);
    enum status (*mem_alloc)(size_t count, size_t size, void *out);
    void (*mem_free)(void *block);
};

/* `version` and `bytes` are the program's DEVICE_VERSION and sizeof(struct device_face): NULL if the plug-in
 * is of another build. */
typedef const struct device_face *cuda_face_fn(const struct cuda_host *host, uint32_t version,
                                               size_t bytes);
#define CUDA_FACE_NAME "tutti_cuda_face"

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_FACE_H */
