#!/usr/bin/env bash
# wrong_input.sh - what is wrong is refused in one line, before anything is touched.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

refused 2 'did you mean mlp' "$tutti" train mpl
refused 2 'unknown model transformer9' "$tutti" train transformer9
refused 2 'did you mean --epochs' "$tutti" train mlp --epoch 3
refused 2 'did you mean train' "$tutti" trian mlp
refused 2 'no model' "$tutti" train
refused 2 'did you mean mirrored' "$tutti" train mlp --strategy mirored -n 2
refused 2 'one rank' "$tutti" train mlp --strategy single -n 2
refused 2 'must lie between' "$tutti" train mlp -n 0
refused 2 'must lie between' "$tutti" train mlp -n 300
refused 2 'must lie between' "$tutti" train mlp --epochs 0
refused 2 'not a number' "$tutti" train mlp --lr fast
refused 2 'not a whole number' "$tutti" train mlp --batch 2.5
refused 2 'needs a value' "$tutti" train mlp --batch
refused 2 'not divisible' "$tutti" train mlp --batch 63 -n 2
refused 2 'not divisible' "$tutti" train mlp --batch 64 --shards 3
refused 2 'each of 4 ranks' "$tutti" train mlp --batch 64 -n 4 --shards 2
refused 2 'did you mean adam' "$tutti" train mlp --optimizer adm
refused 2 'belong to sgd' "$tutti" train mlp --optimizer adam --momentum 0.9
refused 2 'belong to adam, adamw and lamb, not to lars' "$tutti" train mlp --optimizer lars --beta1 0.8
refused 2 'belong to sgd and lars, not to lamb' "$tutti" train mlp --optimizer lamb --nesterov
refused 2 'belongs to lars, not to lamb' "$tutti" train mlp --optimizer lamb --trust 0.1
refused 2 'belongs to lars and lamb, not to sgd' "$tutti" train mlp --optimizer sgd --adapt-all
refused 2 'scaled by --scale-lr alone' "$tutti" train mlp --base-batch 128
refused 2 'must lie between' "$tutti" train mlp --scale-lr --base-batch -1
refused 2 'leave one out' "$tutti" train mlp --accumulate 2 --shards 4
refused 2 'not divisible by 2 ranks times --accumulate 3' "$tutti" train mlp -n 2 --accumulate 3 --batch 64
refused 2 '3 numbers for 2 ranks' "$tutti" train mlp -n 2 --shards 8 --balance 2,1,1
refused 2 'a number above 0 for each rank' "$tutti" train mlp -n 2 --shards 8 --balance 2,0
refused 2 'use --shards 16' "$tutti" train mlp -n 2 --threads 1 --balance auto
refused 2 'balance and --sync-batch-norm' "$tutti" train resnet18 --data fashion-mnist -n 2 --threads 1 --sync-batch-norm --balance auto
refused 2 'needs --decay-every' "$tutti" train mlp --schedule step
refused 2 'decay-every and --gamma belong to --schedule step, not to constant' "$tutti" train mlp --decay-every 5
refused 2 'decay-every and --gamma belong to --schedule step, not to cosine' "$tutti" train mlp --schedule cosine --gamma 0.5
refused 2 'final-lr belongs to --schedule cosine, not to constant' "$tutti" train mlp --final-lr 0.001
refused 2 'must lie between 0 and 0.999999' "$tutti" train mlp --optimizer adam --beta1 1
refused 2 'a whole number from 0' "$tutti" train mlp --seed -1
refused 2 'are for text; mlp reads images' "$tutti" train mlp --tokenizer words
refused 2 'are for text; mlp reads images' "$tutti" train mlp --length 5
refused 2 'unknown flag --out' "$tutti" fed coordinator --state federation --model mlp --out run
refused 2 'unknown schedule' "$tutti" train mlp --schedule polynomial
refused 2 'use --shards 2$' "$tutti" train resnet18 --data fashion-mnist --sync-batch-norm --threads 2 --shards 4
refused 2 'mlp has no batch norm' "$tutti" train mlp --sync-batch-norm
refused 2 'none of that name' "$tutti" train mlp --device gpu
refused 2 'parts of the state alone' "$tutti" train mlp --device cuda -n 4 --split dp=2,pp=2,zero=2
refused 2 'has all gradients' "$tutti" train mlp --device cuda -n 2 --split dp=2,zero=2 --optimizer lamb
refused 2 'go between devices as they are' "$tutti" train mlp --device cuda -n 2 --flat --compress topk
refused 2 "read each other's memory" "$tutti" train mlp --device cuda -n 2 --flat --split dp=2,zero=3
refused 2 'forecasts are the cpu' "$tutti" train mlp --device cuda -n 2 --strategy auto
refused 2 'the device cpu computes in f32' "$tutti" train mlp --precision bf16
refused 2 'f32, tf32, bf16 or fp16' "$tutti" train mlp --precision fp8
refused 2 'the device cpu computes in f32' "$tutti" train mlp --precision fp16
refused 2 'nearest or stochastic' "$tutti" train mlp --rounding up
refused 2 "here they are the cpu's, in f32" "$tutti" train mlp --rounding stochastic
refused 2 'with --precision bf16; here they are f32' "$tutti" train mlp --device cuda --precision tf32 --rounding stochastic
refused 2 'would depend on how layers are split' "$tutti" train gpt --device cuda -n 2 --split tp=2 --rounding stochastic
refused 2 'auto, host or device' "$tutti" train mlp --data-on moon
refused 2 'reads samples where they are' "$tutti" train mlp --data-on device
refused 2 'works with sync step' "$tutti" train mlp --strategy mirrored -n 2 --sync async
refused 2 'K steps from 0 on' "$tutti" train mlp -n 2 --sync bounded:-1
refused 2 'use --meet allreduce' "$tutti" train mlp -n 2 --sync local:4 --meet ps:1
refused 2 'without --compress' "$tutti" train mlp -n 2 --compress-after 5
refused 2 'compress and strategy localsgd' "$tutti" train mlp -n 2 --sync local:4 --compress bf16
refused 2 'do not wait for each other' "$tutti" train resnet18 --data fashion-mnist -n 2 --sync local:4 --sync-batch-norm
refused 2 'balance and strategy localsgd' "$tutti" train mlp -n 2 --shards 8 --sync local:4 --balance 2,1
refused 2 'belong to --sync local:H' "$tutti" train mlp -n 2 --outer-lr 0.7
refused 2 'there are ranks 0 to 1' "$tutti" train mlp -n 2 --slow rank=2,factor=4
refused 2 'like rank=2,factor=4' "$tutti" train mlp -n 2 --slow 2
refused 2 'takes no value' "$tutti" train mlp --shuffle=yes
refused 2 'crop 28 leaves nothing of images of 28x28' "$tutti" train cnn --crop 28
refused 2 'cutout 29 is larger than images of 28x28' "$tutti" train cnn --flip --cutout 29
refused 2 'must lie between' "$tutti" train cnn --loader-threads 65
refused 2 'A:B traces steps' "$tutti" train mlp --trace --trace-steps 20:10
refused 2 'needs --trace' "$tutti" train mlp --trace-steps 1:2
refused 2 'must lie between' "$tutti" train mlp --stall-timeout -1
refused 2 'needs a model' "$tutti" bench scale
refused 2 'one of them' "$tutti" bench scale mlp --weak --strong
refused 2 '2 is there twice' "$tutti" bench scale mlp --ranks 1,2,2
refused 2 'from 1 to 256' "$tutti" bench scale mlp --ranks 0,1
refused 2 'whole number up to 256' "$tutti" bench scale mlp --ranks 1,many
refused 2 'begins with a letter' "$tutti" train mlp --hosts a,,b
refused 2 'a number of ranks follows' "$tutti" train mlp --hosts a:two
refused 2 '4 ranks do not fit the hosts: they have 3 slots' "$tutti" train mlp -n 4 --hosts a:2,b:1
refused 1 'no/such/hosts' "$tutti" train mlp --hosts no/such/hosts
refused 2 'no allocation of Slurm' "$tutti" train mlp --hosts slurm
refused 2 'mpirun belongs to --hosts' "$tutti" train mlp --mpirun mpiexec
refused 2 'not divisible' "$tutti" train mlp --batch 63 --hosts a,b
refused 1 'no/mpirun: there is no such program' "$tutti" train mlp --hosts a,b --mpirun no/mpirun
refused 1 'needs mpirun, which is not installed' env PATH=/nowhere "$tutti" bench train mlp --hosts a,b
refused 2 'takes no --hosts' "$tutti" bench tune mlp --hosts a,b
refused 2 'at most 256' "$tutti" bench comm --hosts 'n[1-300]'
refused 2 'there are small shared direct' "$tutti" bench comm --algorithm fast
refused 2 'did you mean topk' "$tutti" bench comm --codec topj
refused 2 'the rank is a whole number from 1 to 64' "$tutti" bench comm --codec powersgd:0
refused 2 'OMPI_COMM_WORLD_RANK=x' env OMPI_COMM_WORLD_RANK=x "$tutti" train mlp
if ! grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$3/CMakeCache.txt"; then # MPI's libraries are not clean under sanitizers
    refused 2 'ranks of this machine itself' env PMI_RANK=0 PMI_SIZE=2 "$tutti" bench scale mlp
    refused 2 '-n 3, but mpiexec of MPICH started 2' env PMI_RANK=0 PMI_SIZE=2 "$tutti" train mlp -n 3
fi
# Few addresses: libraries that want threads and buffers hold nobody up.
few() { (ulimit -v "$1" && timeout -s KILL 20 "${@:2}"); }
if ! grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$3/CMakeCache.txt"; then # sanitizers take terabytes of them
    for limit in 180000 200000 250000 350000; do
        few $limit "$tutti" --version >out.txt 2>err.txt
        code=$? # 127: too few to load the program
        [ $code = 0 ] || [ $code = 127 ] || complain "--version with $limit KiB of addresses: exit $code: $(cat err.txt)"
        few $limit "$tutti" models >out.txt 2>err.txt
        [ $? != 137 ] || complain "models with $limit KiB of addresses: does not end"
    done
    [ $code = 0 ] || complain "--version with $limit KiB of addresses: exit $code: $(cat err.txt)"
    ! "$tutti" data info fashion-mnist >/dev/null 2>&1 ||
        refused 1 '350000 KiB of addresses here (ulimit -v): raise it' few 350000 "$tutti" bench train mlp --batch 60000 --threads 1 --shards 1
fi
refused 2 'use srun --mpi=pmix' env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$tutti" bench comm
refused 2 'needs a data set' "$tutti" bench data
refused 2 'unknown flag --lr' "$tutti" bench data fashion-mnist --lr 1
refused 2 '0 windows' "$tutti" bench data fashion-mnist --windows 0
refused 2 'whole number up to 64' "$tutti" bench data fashion-mnist --threads 100
refused 2 'crop 28' "$tutti" bench data fashion-mnist --crop 28
refused 2 'one word too many' "$tutti" train mlp cnn
refused 2 'data=fashion-mnist is one word too many: write --data=fashion-mnist' "$tutti" train mlp data=fashion-mnist

# Words of other programs are known.
while read -r arguments; do
    IFS='|' read -r arguments answer <<<"$arguments"
    refused 2 "$answer" "$tutti" $arguments
done <<'LIST'
train mlp --learning-rate 0.1|unknown flag --learning-rate: here it is --lr$
train mlp --learning_rate 0.1|here it is --lr$
train mlp -lr 0.1|unknown flag -lr: did you mean --lr?
train mlp -b 32|unknown flag -b: here it is --batch
train mlp --batch-size=32|here it is --batch$
train mlp --batch_size 32|here it is --batch$
train mlp --gpus 2|here it is --ranks or -n, with --device cuda
train mlp --num-workers 2|here it is --loader-threads
train mlp --resume-from-checkpoint x|here it is --resume DIR
train mlp --fsdp|here it is --strategy zero
train --model mlp|the model is a word of its own
train mlp --strategy ddp|unknown strategy ddp: here it is mirrored on one machine, multiworker on several
train mlp --strategy DDP -n 2|here it is mirrored
train mlp --strategy horovod|here it is multiworker
train mlp --strategy fsdp|here it is zero
train mlp --strategy deepspeed|here it is zero
train mlp --strategy megatron|here it is tensor
train mlp --strategy gpipe|here it is pipeline
train mlp --strategy hogwild|here it is asgd
train mlp --optimizer rmsprop|here it is adam, the nearest
train mlp --optimizer momentum|here it is sgd, with --momentum
train mlp --schedule exponential|here it is step, with
train mlp --device gpu|here it is cuda
train mlp --device cuda:0|here it is cuda; CUDA_VISIBLE_DEVICES
train mlp --precision float32|here it is f32
train transformer|the nearest here is gpt
train perceptron|the nearest here is mlp
train ./runs|unknown model ./runs: a model is a name
mlp --epochs 3|mlp is a model, not a command: tutti train mlp
resume runs/x|here it is tutti train --resume DIR
predict runs/x|here it is tutti eval DIR
list|here it is tutti models
version|here it is tutti --version
download mnist|here it is tutti data fetch NAME
eval mlp|mlp is a model, no folder of a run
generate gpt --prompt x|gpt is a model, no folder of a run
data import x|usage: tutti data import PATH NAME
data fetch|usage: tutti data fetch NAME
LIST
refused 2 'unknown flag --learning-rate: see --help' "$tutti" bench data fashion-mnist --learning-rate 1 # it takes no --lr
# Data that are not here: how to get them.
for data in imdb:ai.stanford.edu wikitext2:wikitext-2-v1.zip pneumoniamnist:medmnist.com; do
    refused 1 "${data#*:}.*tutti data import FOLDER ${data%:*}" env -u TUTTI_DATA "$tutti" data fetch ${data%:*}
done
refused 1 'not in .*ai.stanford.edu.*train.tsv.*tutti data import FOLDER imdb' env -u TUTTI_DATA "$tutti" train nbow --data imdb
refused 1 'run: tutti data fetch heart-disease' env -u TUTTI_DATA "$tutti" train tabular

# Files of other programs are named, with the way to convert them.
zip='PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
printf "$zip\16\0\0\0model/data.pkl and more" >model.pt
printf '\200\2\212\12\154\374\234\106\371\40\152\250\120\31.and more' >old.pth
printf '\200\4\225 a pickle of something' >object.pkl
printf '\211HDF\r\n\32\n and more' >model.h5
printf "$zip\15\0\0\0metadata.json and more" >model.keras
printf "$zip\13\0\0\0weights.npy and more" >arrays.npz
printf '\10\10\22\7pytorch and more' >model.onnx
printf 'GGUF\3\0\0\0 and more' >model.gguf
while read -r file kind; do
    refused 1 "$file is $kind.*convert it.*FILES OF OTHER PROGRAMS" "$tutti" train mlp --init $file
    refused 1 "$file is $kind.*convert it" "$tutti" eval mlp --data fashion-mnist --weights $file
    refused 1 "$file is $kind.*convert it" "$tutti" train mlp --data ./$file
    refused 2 "$file is $kind.*--weights" "$tutti" eval $file
    refused 2 "unknown model $file: a model is a name" "$tutti" train $file
done <<'LIST'
model.pt a PyTorch file
old.pth a PyTorch file
object.pkl a Python pickle
model.h5 an HDF5 file
model.keras a Keras model
arrays.npz a NumPy archive
model.onnx an ONNX model
model.gguf a GGUF file
LIST
refused 2 'for the file write ./notes.txt' bash -c 'echo text >notes.txt; exec "$0" train gpt --data notes.txt' "$tutti"
refused 2 'notes.txt is a file, no folder of a run' "$tutti" eval notes.txt
refused 2 'holds no run' "$tutti" eval .
refused 2 'no folder' "$tutti" train --resume nowhere
refused 2 'text, dot, svg or json' "$tutti" graph mlp --format png
refused 2 'attention goes with LSTM cells' "$tutti" graph seq2seq --attention bahdanau --cell gru
refused 2 'unknown pass' "$tutti" graph mlp --after magic
refused 2 'the device cpu computes in f32' "$tutti" graph mlp --precision bf16
refused 2 'did you mean fashion-mnist' "$tutti" train mlp --data fashion-mist
refused 1 'no/such/folder' "$tutti" train mlp --data no/such/folder
refused 2 'shows one model' "$tutti" models --json
refused 2 'unknown flag --size' "$tutti" models cnn --size 124m
refused 2 'unknown flag --size' "$tutti" models --size 124m
refused 2 'must be' "$tutti" models gpt --size 124
refused 2 'unknown flag --batch' "$tutti" models gpt --batch 3
refused 2 'of one model' "$tutti" models --vocab 3
refused 1 'no/such' "$tutti" models mlp --svg no/such/mlp.svg
refused 2 "NAME comes before --report" "$tutti" data info --report fashion-mnist
refused 1 "no/such" "$tutti" data info fashion-mnist --report no/such/page.html
[ ! -e runs ] || complain "a refused run left a folder"

# Files that are not what they should be.
mkdir bad && head -c 100 /dev/zero >bad/train-images-idx3-ubyte
cp bad/train-images-idx3-ubyte bad/train-labels-idx1-ubyte
refused 1 'train-.*ubyte' "$tutti" train mlp --data ./bad --out bad-run
python3 - <<'PY'
import os, struct
os.makedirs("differ")
for split in ("train", "t10k"):
    open(f"differ/{split}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, 4, 28, 28) + bytes(4 * 784))
    open(f"differ/{split}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, 3) + bytes(3))
PY
refused 1 '4 images.*3 labels\|3 labels.*4 images' "$tutti" train mlp --data ./differ --out bad-run
mkdir cut && for i in 1 2 3 4 5; do head -c 3073 /dev/zero >cut/data_batch_$i.bin; done
head -c 3000 /dev/zero >cut/test_batch.bin
mkdir inside && cd inside || exit 1
refused 1 'no data set there; read are idx' "$tutti" train mlp --data . --out ../bad-run
cd .. || exit 1
refused 1 'test_batch.bin: is cut short.*record 0' "$tutti" train mlp --data ./cut --out bad-run
mkdir -p pictures/train/a && printf 'GIF89a' >pictures/train/a/1.png
refused 1 'pictures/train/a/1.png: is neither a PNG nor a JPEG' "$tutti" train mlp --data ./pictures --out bad-run
echo '{"isa": 3' >kernels.json
refused 1 'kernels.json' "$tutti" train mlp --kernels kernels.json --out bad-run
printf 'not tensors' >weights.safetensors
refused 1 'weights.safetensors' "$tutti" train mlp --init weights.safetensors --out bad-run
printf 'int x;\n' >empty.c
refused 2 'TUTTI_MODEL' "$tutti" train empty.c --out bad-run

# Models in C: a layer without outputs, one too large for any machine, and outputs that are not the classes.
model() { # NAME BODY
    printf '#include <tutti.h>\nstatic struct tutti_value *f(struct tutti_graph *g, struct tutti_value *x, int classes)\n' >"$1.c"
    printf '{ %s }\nTUTTI_MODEL(f)\n' "$2" >>"$1.c"
}
train_model() { timeout 20 "$tutti" train "$@" --data fashion-mnist --steps 2 --limit 200 --quiet --out bad-run; }
show_model() { timeout 20 "$tutti" models "$@"; }
show_graph() { timeout 20 "$tutti" graph "$@"; }
model none 'return tutti_linear(g, "g", tutti_linear(g, "f", x, 0), classes);'
model less 'return tutti_linear(g, "g", tutti_linear(g, "f", x, -10), classes);'
model no_channel 'return tutti_linear(g, "g", tutti_conv2d_transpose(g, "f", x, 0, 3, 1, 1, 0), classes);'
model large 'return tutti_linear(g, "g", tutti_linear(g, "f", x, 1LL << 33), classes);'
model larger 'return tutti_linear(g, "g", tutti_linear(g, "f", x, 1LL << 60), classes);'
model wide 'return tutti_linear(g, "g", tutti_conv2d_transpose(g, "f", x, 1, 3, 20000, 1, 1), classes);'
model fewer 'return tutti_linear(g, "g", x, classes - 3);'
model more 'return tutti_linear(g, "g", x, classes + 1);'
for how in train_model show_model show_graph; do
    refused 2 'f.weight has shape 0x784: a layer has at least one output' $how none.c
    refused 2 'f.weight: negative extent -10' $how less.c
    refused 2 'f.weight has shape 1x0x3x3' $how no_channel.c
    refused 2 'f.weight has shape 8589934592x784, more than 2147483647 elements' $how large.c
    refused 2 'f.weight: shape 1152921504606846976x784 has too many elements' $how larger.c
    refused 2 'f has shape .*x540002x540002, more than 2147483647 elements a sample' $how wide.c
    refused 2 'returns 7 outputs a sample for 10 classes' $how fewer.c
    refused 2 'returns 11 outputs a sample for 10 classes' $how more.c
done
[ ! -e bad-run ] || complain "a refused run left bad-run"

# A run is not overwritten by accident.
"$tutti" train mlp --steps 2 --limit 200 --quiet --out run || complain "a small run"
before=$(find run -type f | sort | xargs sha256sum)
refused 2 'holds a run already' "$tutti" train cnn --steps 2 --limit 200 --out run
refused 2 'has done all' "$tutti" train --resume run
[ "$before" = "$(find run -type f | sort | xargs sha256sum)" ] || complain "a refused run changed files"
"$tutti" train mlp --steps 2 --limit 200 --quiet --out run --overwrite || complain "--overwrite"

touch file
refused 1 'file' "$tutti" train mlp --steps 1 --out file/run
finish
