/* SPDX-License-Identifier: MIT */
/* cluster.c - ranks on other machines, as commands see them.
 *
 * A process that mpirun, mpiexec or srun started has its number of ranks from there, before flags
 * are read; -n may say the same, no other. One that nobody started and that was given --hosts
 * becomes mpirun, which starts the same command line on each machine; there --hosts has done its
 * work.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "pass/strategy.h"
#include "train/job.h"
#include "transport/launch.h"
#include "transport/mpirun.h"

enum { HOST_FILE_BYTES = 1 << 20, WORDS_MAX = 512, RANKS_MAX = 256 };

enum status cli_join(struct settings *settings, struct cluster *cluster)
{
    TRY(cluster_discover(&cluster_environment, cluster));
    if (cluster->starter == STARTER_NONE)
        return STATUS_OK;
    if (cluster->starter == STARTER_SLURM)
        return FAIL(STATUS_USAGE,
                    "srun started %d tasks that cannot find each other: use srun --mpi=pmix "
                    "(Open MPI) or srun --mpi=pmi2 (MPICH)",
                    cluster->size);
    if (cluster->size == 0) { /* its starter does not say */
        TRY(launch_size(&cluster->size));
        if (cluster->size == 1)
            *cluster = (struct cluster){ STARTER_NONE, 0, 1, 0, 1 };
    }
    if (cluster->size > RANKS_MAX)
        return FAIL(STATUS_USAGE, "%s started %d ranks: at most %d are supported",
                    cluster_starter_name(cluster->starter), cluster->size, RANKS_MAX);
    if (cluster->size)
        settings->ranks = cluster->size;
    return STATUS_OK;
}

/* --hosts: a list, a file (it has a slash) or Slurm's allocation. */
static enum status read_hosts(const char *text, struct hosts *out)
{
    const struct environment *own = &cluster_environment;
    char *contents;
    size_t length;

    if (strcmp(text, "slurm") == 0) {
        const char *nodes = own->get(own->arg, "SLURM_JOB_NODELIST");
        const char *tasks = own->get(own->arg, "SLURM_TASKS_PER_NODE");
        if (!nodes || !tasks)
            return FAIL(STATUS_USAGE, "--hosts slurm: this is no allocation of Slurm (salloc, "
                                      "sbatch)");
        return hosts_parse_slurm(nodes, tasks, out);
    }
    if (!strchr(text, '/'))
        return hosts_parse(text, out);
    TRY(file_read(text, HOST_FILE_BYTES, &contents, &length));
    enum status status = hosts_parse_file(contents, out);
    if (status == STATUS_OK && strlen(contents) != length) {
        hosts_release(out);
        status = FAIL(STATUS_USAGE, "--hosts %s: this is no text", text);
    }
    mem_free(contents);
    return status;
}

/* Ranks that are no workers: servers come behind them. */
static int servers_of(const struct settings *s)
{
    return strategy_servers(*s->strategy ? s->strategy : NULL, *s->sync ? s->sync : NULL,
                            *s->meet ? s->meet : NULL);
}

/* The machines with their ranks. One rank is what is meant if -n is not given. */
static enum status place(struct settings *settings, struct hosts *out)
{
    const int servers = servers_of(settings);

    TRY(read_hosts(settings->hosts, out));
    if (settings->ranks == 1 && hosts_room(out) > servers)
        settings->ranks = hosts_room(out) - servers;
    enum status status = hosts_assign(out, (int)settings->ranks + servers);
    if (status == STATUS_OK && settings->ranks > RANKS_MAX)
        status =
            FAIL(STATUS_USAGE, "--hosts %.200s has room for %lld ranks: at most %d, say -n",
                 settings->hosts, (long long)settings->ranks, RANKS_MAX);
    if (status != STATUS_OK)
        hosts_release(out);
    return status;
}

/* Ranks that may be on several machines have the strategy for that, unless told otherwise. */
static void prefer_many_machines(struct settings *s)
{
    if (!*s->strategy && s->ranks > 1)
        snprintf(s->strategy, sizeof s->strategy, "%s",
                 strategy_pick((int)s->ranks, true, *s->split ? s->split : NULL,
                               *s->sync ? s->sync : NULL, *s->meet ? s->meet : NULL)
                     ->name);
}

/* Of the ranks that were started the last are servers; -n may say how many others there are. */
static enum status count_workers(struct settings *settings, const struct cluster *cluster)
{
    const int servers = servers_of(settings), workers = cluster->size - servers;

    if (!cluster->size)
        return STATUS_OK;
    if (workers < 1)
        return FAIL(STATUS_USAGE, "%s started %d ranks, of which %d are servers: start more",
                    cluster_starter_name(cluster->starter), cluster->size, servers);
    if (settings->ranks != cluster->size && settings->ranks != workers)
        return FAIL(STATUS_USAGE, "-n %lld, but %s started %d ranks%s: leave -n out",
                    (long long)settings->ranks, cluster_starter_name(cluster->starter),
                    cluster->size, servers ? ", servers included" : "");
    settings->ranks = workers;
    return STATUS_OK;
}

/* Machines may have different numbers of cores, or of ranks: each has its own threads, but a step has the
 * shards that rank 0 would choose. */
static enum status pick_threads(struct settings *settings, const struct cluster *cluster)
{
    int first = 0;

    if (!settings->shards)
        TRY(launch_first_threads(&first));
    settings->shard_threads = first;
    settings->threads = cluster_threads(cluster);
    return STATUS_OK;
}

enum status cli_place(struct settings *settings, const struct cluster *cluster)
{
    struct hosts hosts;

    if (cluster->starter == STARTER_NONE) {
        if (!*settings->hosts && (*settings->launch_agent || *settings->mpirun))
            return FAIL(STATUS_USAGE, "--%s belongs to --hosts",
                        *settings->mpirun ? "mpirun" : "launch-agent");
        if (!*settings->hosts)
            return STATUS_OK;
        TRY(place(settings, &hosts));
        hosts_release(&hosts);
        prefer_many_machines(settings);
        return STATUS_OK;
    }
    launch_set_patience(settings->lost_after, settings->stall_timeout);
    TRY(count_workers(settings, cluster));
    if (!settings->threads && cluster->local_size)
        TRY(pick_threads(settings, cluster));
    prefer_many_machines(settings);
    return STATUS_OK;
}

bool cli_is_elsewhere(const struct settings *settings, const struct cluster *cluster)
{
    return cluster->starter == STARTER_NONE && *settings->hosts;
}

enum status cli_start_elsewhere(const char *name, const struct args *args,
                                struct settings *settings)
{
    char program[PATH_MAX], *words[WORDS_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    struct hosts hosts;
    int n = 0;

    if (length <= 0)
        return FAIL(STATUS_IO, "the path of this program is not known: is /proc there?");
    program[length] = '\0';
    if (args->count + 3 > WORDS_MAX)
        return FAIL(STATUS_USAGE, "%d arguments are too many to be passed on", args->count);
    words[n++] = program;
    words[n++] = (char *)name;
    for (int i = 0; i < args->count; i++)
        words[n++] = args->word[i];
    words[n] = NULL;
    TRY(place(settings, &hosts));
    const struct mpirun mpirun = {
        .program = settings->mpirun,
        .launch_agent = settings->launch_agent,
        .hosts = &hosts,
        .command = words,
        .environment = environ,
    };
    (void)fflush(NULL);
    const enum status status = mpirun_become(&mpirun);
    hosts_release(&hosts);
    return status;
}
