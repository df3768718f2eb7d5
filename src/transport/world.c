/* SPDX-License-Identifier: MIT */
/* world.c - the plug-in for the MPI library whose starter started this process (cluster.h says
 * which) is found and opened.
 *
 * Only the environment is looked at before that: a program that runs on its own never touches
 * MPI, and needs none.
 */
#include "transport/world.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "transport/cluster.h"
#include "transport/guard.h"

enum { N_LIBRARIES = 2, PATIENCE_NS = 100000000 };

/* Plug-ins that can talk to a starter, the likeliest first. */
static const char *const libraries_of[][N_LIBRARIES] = {
    [STARTER_OPENMPI] = { "openmpi" },
    [STARTER_MPICH] = { "mpich" },
    [STARTER_PMIX] = { "openmpi", "mpich" },
    [STARTER_SLURM] = { NULL },
};

static const struct package {
    const char *library, *name;
} packages[] = { { "openmpi", "libopenmpi-dev" }, { "mpich", "libmpich-dev" } };

static struct world the_world = { .lock = PTHREAD_MUTEX_INITIALIZER };

void world_lock(struct world *world)
{
    while (atomic_load_explicit(&world->monitor_waits, memory_order_relaxed))
        (void)sched_yield();
    pthread_mutex_lock(&world->lock);
}

bool world_lock_first(struct world *world)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    atomic_store_explicit(&world->monitor_waits, true, memory_order_relaxed);
    const int error = pthread_mutex_clocklock(&world->lock, CLOCK_MONOTONIC, &until);
    atomic_store_explicit(&world->monitor_waits, false, memory_order_relaxed);
    return error == 0;
}

void world_unlock(struct world *world)
{
    pthread_mutex_unlock(&world->lock);
}

/* Is this process one of several? */
static bool find_cluster(struct cluster *out)
{
    if (cluster_discover(&cluster_environment, out) != STATUS_OK)
        return false;
    if (out->size == 0 && the_world.face) /* the starter does not say; MPI did */
        out->size = the_world.size;
    return out->starter != STARTER_NONE && out->size != 1;
}

bool launch_world(int *out_rank, int *out_size)
{
    struct cluster cluster;

    if (!find_cluster(&cluster))
        return false;
    *out_rank = cluster.rank;
    *out_size = cluster.size;
    return true;
}

bool launch_is_on_one_machine(void)
{
    struct cluster cluster;

    return !find_cluster(&cluster) || (cluster.size > 0 && cluster.local_size == cluster.size);
}

/* The plug-in -------------------------------------------------------------------------------- */

/* Folder of the file at path, with the slash. */
static bool folder_of(const char *path, char *out)
{
    const char *slash = strrchr(path, '/');

    if (!slash || (size_t)(slash - path) + 2 > PATH_MAX)
        return false;
    (void)snprintf(out, PATH_MAX, "%.*s", (int)(slash - path + 1), path);
    return true;
}

/* Beside the program or the library that holds this code, or where they are installed to. */
static void *open_near(const char *path, const char *file, char *reason, size_t bytes)
{
    static const char *const folders[] = { "", "tutti/", "../" TUTTI_LIBDIR "/tutti/" };
    char folder[PATH_MAX], candidate[2 * PATH_MAX];

    if (!folder_of(path, folder))
        return NULL;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        (void)snprintf(candidate, sizeof(candidate), "%s%s%s", folder, folders[i], file);
        if (access(candidate, R_OK) != 0)
            continue;
        /* Components of Open MPI look for symbols of its library among the global ones. */
        void *plugin = dlopen(candidate, RTLD_NOW | RTLD_GLOBAL);
        if (plugin)
            return plugin;
        (void)snprintf(reason, bytes, "%s", dlerror());
    }
    return NULL;
}

static void *open_library(const char *library, char *reason, size_t bytes)
{
    char file[64], program[PATH_MAX] = "";
    Dl_info here;

    (void)snprintf(file, sizeof(file), "tutti-mpi-%s.so", library);
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) > 0) {
        void *plugin = open_near(program, file, reason, bytes);
        if (plugin)
            return plugin;
    }
    if (dladdr(&the_world, &here) == 0 || !here.dli_fname)
        return NULL;
    return open_near(here.dli_fname, file, reason, bytes);
}

static const char *package_of(const char *library)
{
    for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++) {
        if (strcmp(packages[i].library, library) == 0)
            return packages[i].name;
    }
    return library;
}

static enum status open_plugin(const struct cluster *cluster, void **out)
{
    const char *const starter = cluster_starter_name(cluster->starter);
    const char *wish = getenv("TUTTI_MPI");
    const char *libraries[N_LIBRARIES] = { libraries_of[cluster->starter][0],
                                           libraries_of[cluster->starter][1] };
    char reason[512] = "";

    if (wish && strchr(wish, '/')) {
        *out = dlopen(wish, RTLD_NOW | RTLD_GLOBAL);
        return *out ? STATUS_OK : FAIL(STATUS_NOT_FOUND, "TUTTI_MPI: %s", dlerror());
    }
    if (wish && *wish) {
        libraries[0] = wish;
        libraries[1] = NULL;
    }
    if (!libraries[0])
        return FAIL(
            STATUS_USAGE,
            "%s started %d tasks that cannot find each other: use srun --mpi=pmix (Open "
            "MPI) or srun --mpi=pmi2 (MPICH)",
            starter, cluster->size);
    for (int i = 0; i < N_LIBRARIES && libraries[i]; i++) {
        *out = open_library(libraries[i], reason, sizeof(reason));
        if (*out)
            return STATUS_OK;
    }
    if (*reason)
        return FAIL(STATUS_NOT_FOUND, "%s started this process, but its MPI cannot be used: %s",
                    starter, reason);
    return FAIL(STATUS_NOT_FOUND,
                "%s started this process, but there is no tutti-mpi-%s.so beside the program: "
                "install %s and build again",
                starter, libraries[0], package_of(libraries[0]));
}

/* After a failure MPI could wait for ever for the lost. */
static void leave(void)
{
    if (!the_world.is_lost)
        the_world.face->close();
}

/* Every process says so as soon as it has joined, whatever it joined for: so that all are at the same
 * meeting, those too that have only come to tell of a failure. */
static enum status hear_threads(const struct mpi_face *face, const struct cluster *cluster)
{
    const int mine = cluster_threads(cluster);
    char text[MPI_FACE_TEXT] = "";
    int *all;

    TRY(mem_alloc((size_t)the_world.size, sizeof(*all), &all));
    const int failed = face->gather(&mine, sizeof(mine), all, text);
    the_world.first_threads = all[0];
    mem_free(all);
    return failed ? FAIL(STATUS_IO, "MPI: %s", text) : STATUS_OK;
}

static enum status join_world(const struct cluster *cluster)
{
    char text[MPI_FACE_TEXT] = "";
    void *plugin;

    TRY(guard_begin(cluster));
    TRY(open_plugin(cluster, &plugin));
    const struct mpi_face *face = dlsym(plugin, MPI_FACE_NAME);
    if (!face || face->version != MPI_FACE_VERSION)
        return FAIL(STATUS_MISMATCH, "the MPI plug-in is of another build than the program: "
                                     "build both anew (script/build)");
    guard_note_waiting(true);
    if (face->open(&the_world.rank, &the_world.size, text) != 0)
        return FAIL(STATUS_IO, "MPI: %s", text);
    if (cluster->size > 0 && the_world.size != cluster->size)
        return FAIL(STATUS_MISMATCH,
                    "%s started %d processes, but MPI knows of %d: it is another MPI than the "
                    "plug-in was built for (TUTTI_MPI=openmpi or mpich chooses one)",
                    cluster_starter_name(cluster->starter), cluster->size, the_world.size);
    TRY(hear_threads(face, cluster));
    guard_note_waiting(false);
    the_world.face = face;
    (void)atexit(leave);
    return STATUS_OK;
}

enum status world_open(struct world **out)
{
    struct cluster cluster;

    BUG_ON(!find_cluster(&cluster));
    if (!the_world.face)
        TRY(join_world(&cluster));
    *out = &the_world;
    return STATUS_OK;
}

enum status launch_size(int *out_size)
{
    struct cluster cluster;
    struct world *world;

    *out_size = 1;
    if (!find_cluster(&cluster))
        return STATUS_OK;
    if (cluster.size == 0)
        TRY(world_open(&world));
    *out_size = cluster.size ? cluster.size : the_world.size;
    return STATUS_OK;
}

enum status launch_first_threads(int *out_threads)
{
    struct cluster cluster;
    struct world *world;

    BUG_ON(!find_cluster(&cluster));
    TRY(world_open(&world));
    *out_threads = world->first_threads;
    return STATUS_OK;
}

void launch_set_patience(double lost_after, double stall_timeout)
{
    guard_set_patience((int)(1000 * lost_after), (int64_t)(1000 * stall_timeout));
}

/* Failure before the job began ----------------------------------------------------------------- */

struct failure {
    enum status status;
    const char *text;
};

static enum status fail_body(struct transport *transport, void *arg)
{
    const struct failure *failure = arg;

    (void)transport;
    return status_set(failure->status, failure->text);
}

bool launch_reports(enum status status)
{
    char text[512];
    int rank, size;

    if (!launch_world(&rank, &size))
        return true;
    if (!join_has_begun()) {
        struct failure failure = { status, text };
        const struct launch_config config = { .size = size };

        (void)snprintf(text, sizeof(text), "%s", status_message());
        const enum status told = launch_ranks(&config, fail_body, &failure);
        (void)status_set(status,
                         text); /* its own, as it was, also where nobody could be told */
        if (told != status || !join_has_begun())
            return rank == 0;
    }
    return join_reports();
}
