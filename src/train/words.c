/* SPDX-License-Identifier: MIT */
/* words.c - the table of other programs' names. Words of a row are separated by spaces. */
#include "train/words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct row {
    const char *words, *here;
};

/* clang-format off: a row a line */
static const struct row flag[] = {
    { "learning-rate initial-lr base-lr", "--lr" },
    { "batch-size bs b per-device-train-batch-size train-batch-size "
      "micro-batch-size global-batch-size",
      "--batch" },
    { "num-epochs n-epochs num-train-epochs max-epochs", "--epochs" },
    { "max-steps num-steps iterations iters max-iters train-iters max-train-steps", "--steps" },
    { "optim opt", "--optimizer" },
    { "wd l2 decay", "--weight-decay" },
    { "eps adam-epsilon adam-eps", "--epsilon" },
    { "adam-beta1", "--beta1" },
    { "adam-beta2", "--beta2" },
    { "betas", "--beta1 B and --beta2 B" },
    { "grad-clip clip-grad clip-grad-norm max-grad-norm gradient-clip-val "
      "clip-norm clipnorm",
      "--clip" },
    { "scheduler lr-scheduler lr-scheduler-type lr-schedule lr-decay-style "
      "lr-policy",
      "--schedule" },
    { "warmup-steps num-warmup-steps lr-warmup-iters warmup-iters", "--warmup" },
    { "min-lr eta-min", "--final-lr" },
    { "gradient-accumulation-steps grad-accum accumulation-steps "
      "accumulate-grad-batches",
      "--accumulate" },
    { "random-seed manual-seed", "--seed" },
    { "smoothing", "--label-smoothing" },
    { "dataset data-dir data-path train-data root", "--data" },
    { "max-samples num-samples max-train-samples limit-train-batches", "--limit" },
    { "num-workers data-workers dataloader-num-workers",
      "--loader-threads (worker processes: --ranks or -n)" },
    { "processes num-processes nproc nproc-per-node np world-size workers "
      "num-ranks",
      "--ranks or -n" },
    { "gpus num-gpus n-gpu devices", "--ranks or -n, with --device cuda" },
    { "gpu cuda use-gpu use-cuda accelerator", "--device cuda" },
    { "nodes nnodes hostfile machinefile host-file master-addr", "--hosts LIST" },
    { "num-threads omp-num-threads cpus", "--threads" },
    { "ddp distributed dist horovod data-parallel multi-gpu mirrored",
      "--strategy mirrored on one machine, multiworker on several; see tutti "
      "strategies" },
    { "fsdp deepspeed zero zero-stage zero3", "--strategy zero, or --split dp=N,zero=3" },
    { "tensor-parallel tensor-parallel-size tensor-model-parallel-size tp "
      "model-parallel",
      "--split tp=N" },
    { "pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size pp",
      "--split pp=N" },
    { "dp data-parallel-size", "--split dp=N" },
    { "parameter-server parameter-servers ps", "--strategy ps" },
    { "gradient-compression compression", "--compress" },
    { "activation-checkpointing gradient-checkpointing checkpoint-activations "
      "recompute-activations",
      "--recompute" },
    { "sync-bn syncbn", "--sync-batch-norm" },
    { "amp fp16 bf16 mixed-precision half dtype", "--precision" },
    { "max-length max-len max-seq-len seq-len seq-length block-size "
      "context-length context max-tokens max-new-tokens",
      "--length" },
    { "vocab-size", "--vocab" },
    { "num-beams beam-size", "--beam" },
    { "output output-dir save-dir log-dir logdir save model-dir", "--out" },
    { "log-interval print-freq logging-steps", "--log-every" },
    { "eval-interval val-every eval-steps validate-every", "--eval-every" },
    { "save-every save-steps save-interval checkpoint-interval checkpoint-freq",
      "--checkpoint-every" },
    { "save-total-limit max-to-keep", "--keep" },
    { "checkpoint ckpt ckpt-path load restore continue resume-from "
      "resume-from-checkpoint",
      "--resume DIR" },
    { "pretrained pretrained-weights from-pretrained load-weights finetune "
      "init-from",
      "--init FILE" },
    { "force", "--overwrite" },
    { "silent", "--quiet" },
    { "profile profiler", "--trace" },
    { "horizontal-flip random-flip hflip", "--flip" },
    { "random-crop crop-padding", "--crop" },
    { 0 },
};
static const struct row command[] = {
    { "fit run start learn", "tutti train MODEL" },
    { "resume continue", "tutti train --resume DIR" },
    { "evaluate test validate val predict infer inference", "tutti eval DIR" },
    { "sample translate complete chat write", "tutti generate DIR" },
    { "download fetch get", "tutti data fetch NAME" },
    { "import convert", "tutti data import PATH NAME" },
    { "dataset datasets info", "tutti data list" },
    { "list ls zoo model", "tutti models" },
    { "strategy", "tutti strategies" },
    { "gpus gpu device", "tutti devices" },
    { "benchmark profile tune", "tutti bench" },
    { "version", "tutti --version" },
    { "show summary print view", "tutti report DIR" },
    { "export save",
      "weights are safetensors files in a run's checkpoint folder already; tutti "
      "graph MODEL --format json writes the graph" },
    { "federated coordinator participant join server", "tutti fed" },
    { "launch mpirun torchrun", "tutti train MODEL -n RANKS" },
    { 0 },
};
static const struct row model[] = {
    { "perceptron dnn ffn feedforward fc nn linear-net", "mlp" },
    { "convnet conv convolutional simplecnn", "cnn" },
    { "lenet5 lenet-5", "lenet" },
    { "vgg16 vgg19 vgg", "vgg11" },
    { "resnet34 resnet50 resnet101 resnet152", "resnet18" },
    { "mobilenet mobilenetv2 mobilenet-v3", "mobilenet_v2" },
    { "autoencoder ae vae", "conv_autoencoder" },
    { "transformer llama nanogpt gpt-neo mistral decoder language-model lm", "gpt" },
    { "roberta distilbert encoder", "bert" },
    { "lstm gru rnn translation nmt encoder-decoder", "seq2seq" },
    { "bow bag-of-words fasttext embeddingbag", "nbow" },
    { "kimcnn cnn-text", "textcnn" },
    { "logreg logistic-regression linear", "logistic" },
    { "wide-and-deep tabnet", "tabular" },
    { 0 },
};
static const struct row strategy[] = {
    { "ddp dp data-parallel dataparallel distributed distributeddataparallel "
      "allreduce all-reduce sync synchronous mirroredstrategy",
      "mirrored on one machine, multiworker on several" },
    { "horovod byteps nccl mpi multi-node multinode multiworkermirroredstrategy",
      "multiworker" },
    { "fsdp fsdp2 fully-sharded fullyshardeddataparallel deepspeed zero-1 zero-2 "
      "zero-3 zero1 zero2 zero3 sharded",
      "zero (--split dp=N,zero=3 for all that it can share)" },
    { "megatron megatron-lm tensor-parallel tp model-parallel mp", "tensor (or --split tp=N)" },
    { "gpipe pipedream 1f1b pp pipeline-parallel", "pipeline" },
    { "3d 2d", "hybrid (--split dp=N,tp=N,pp=N)" },
    { "parameter-server parameterserver parameterserverstrategy", "ps" },
    { "hogwild async asynchronous downpour", "asgd" },
    { "local-sgd diloco", "localsgd" },
    { "dpsgd d-psgd decentralized sgp bluefog", "gossip" },
    { "fedavg federated", "localsgd (for participants that keep their data: tutti fed)" },
    { "none serial sequential one-device onedevicestrategy", "single" },
    { "automatic alpa", "auto" },
    { 0 },
};
static const struct row optimizer[] = {
    { "momentum nesterov", "sgd, with --momentum and --nesterov" },
    { "rmsprop adagrad adadelta nadam adamax radam", "adam, the nearest there is" },
    { "lion adafactor shampoo muon", "adamw, the nearest there is" },
    { 0 },
};
static const struct row schedule[] = {
    { "linear polynomial poly",
      "cosine, which ends at --final-lr, too; --warmup rises linearly" },
    { "cosineannealing cosine-annealing cosineannealinglr onecycle one-cycle", "cosine" },
    { "exponential multistep steplr multisteplr", "step, with --decay-every and --gamma" },
    { "none fixed", "constant" },
    { 0 },
};
static const struct row device[] = {
    { "gpu nvidia cuda0 gpu0 gpus", "cuda" },
    { "cuda:0 gpu:0", "cuda; CUDA_VISIBLE_DEVICES says which" },
    { "mps rocm hip xpu tpu metal vulkan opencl", "cpu or cuda" },
    { "host x86", "cpu" },
    { 0 },
};
static const struct row precision[] = {
    { "fp32 float32 float single 32", "f32" },
    { "float16 f16 half 16", "fp16" },
    { "bfloat16 amp mixed bf-16", "bf16" },
    { "tensorfloat32 tensorfloat-32", "tf32" },
    { 0 },
};
/* clang-format on */

static const struct row *const tables[WORDS_KINDS] = {
    [WORDS_FLAG] = flag,         [WORDS_COMMAND] = command,     [WORDS_MODEL] = model,
    [WORDS_STRATEGY] = strategy, [WORDS_OPTIMIZER] = optimizer, [WORDS_SCHEDULE] = schedule,
    [WORDS_DEVICE] = device,     [WORDS_PRECISION] = precision,
};

static int as_written(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

/* Is it the `length` characters at `at`? */
static bool is_word(const char *word, const char *at, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!word[i] || as_written(word[i]) != at[i])
            return false;
    }
    return word[length] == '\0';
}

static bool has_word(const char *words, const char *word)
{
    for (const char *at = words; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (is_word(word, at, length))
            return true;
        at += length;
    }
    return false;
}

const char *words_here(enum words kind, const char *word)
{
    for (const struct row *row = tables[kind]; row->words; row++) {
        if (has_word(row->words, word))
            return row->here;
    }
    return NULL;
}
