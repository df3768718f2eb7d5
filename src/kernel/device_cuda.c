/* SPDX-License-Identifier: MIT */
/* device_cuda.c - finds and opens the plug-in tutti-cuda.so.
 *
 * It lies beside the program, or where that is installed; TUTTI_CUDA names another file. A program that nobody
 * asks for a GPU never looks for it.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "kernel/cuda/face.h"
#include "kernel/device_rows.h"

static const char FILE_NAME[] = "tutti-cuda.so";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct device_face *the_face; /* guarded by lock; NULL until opened */

static void keep_failure(enum status status, const char *file, int line, const char *text)
{
    (void)status_fail(status, file, line, "%s", text);
}

static const struct cuda_host host = {
    .fail = keep_failure,
    .bug = status_bug,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
};

/* Beside the file at `path`, or where it is installed to. NULL with `reason` if one is there that cannot
 * be opened. */
static void *open_near(const char *path, char *reason, size_t bytes)
{
    static const char *const folders[] = { "", "tutti/", "../" TUTTI_LIBDIR "/tutti/" };
    const char *slash = strrchr(path, '/');
    char candidate[2 * PATH_MAX];

    if (!slash || slash - path >= PATH_MAX)
        return NULL;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)(slash - path + 1), path,
                       folders[i], FILE_NAME);
        if (access(candidate, R_OK) != 0)
            continue;
        void *plugin = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
        if (plugin)
            return plugin;
        (void)snprintf(reason, bytes, "%s", dlerror());
    }
    return NULL;
}

static enum status open_plugin(void **out)
{
    const char *wish = getenv("TUTTI_CUDA");
    char program[PATH_MAX] = "", reason[512] = "";
    Dl_info here;
    void *plugin = NULL;

    if (wish && *wish) {
        *out = dlopen(wish, RTLD_NOW | RTLD_LOCAL);
        return *out ? STATUS_OK : FAIL(STATUS_NOT_FOUND, "TUTTI_CUDA: %s", dlerror());
    }
    if (readlink("/proc/self/exe", program, sizeof program - 1) > 0)
        plugin = open_near(program, reason, sizeof reason);
    if (!plugin && dladdr(&host, &here) != 0 && here.dli_fname)
        plugin = open_near(here.dli_fname, reason, sizeof reason);
    if (!plugin && *reason)
        return FAIL(STATUS_UNSUPPORTED, "%s cannot be used: %s", FILE_NAME, reason);
    if (!plugin)
        return FAIL(STATUS_UNSUPPORTED,
                    "there is no %s beside the program: build it where nvcc is (cmake --preset "
                    "cuda)",
                    FILE_NAME);
    *out = plugin;
    return STATUS_OK;
}

static enum status open_face(const struct device_face **out)
{
    void *plugin;
    union { /* ISO C has no way from an object's pointer to a function's */
        void *object;
        cuda_face_fn *function;
    } symbol;

    TRY(open_plugin(&plugin));
    symbol.object = dlsym(plugin, CUDA_FACE_NAME);
    const struct device_face *face =
        symbol.object ? symbol.function(&host, DEVICE_VERSION, sizeof *face) : NULL;
    if (!face)
        return FAIL(STATUS_MISMATCH,
                    "%s is of another build than the program: build both anew (script/build)",
                    FILE_NAME);
    *out = face;
    return STATUS_OK;
}

enum status device_load_cuda(const struct device_face **out)
{
    enum status status = STATUS_OK;

    pthread_mutex_lock(&lock);
    if (!the_face)
        status = open_face(&the_face);
    if (status == STATUS_OK)
        *out = the_face;
    pthread_mutex_unlock(&lock);
    return status;
}

enum status device_find_cuda(const struct device_face **out)
{
    const struct device_face *face;
    int count;

    TRY(device_load_cuda(&face));
    TRY(face->count(&count));
    *out = face;
    return STATUS_OK;
}
