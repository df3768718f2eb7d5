#!/usr/bin/env bash
# compare_builds.sh - two builds of the program train the same weights, and a synchronous strategy those of one rank.
#
#   tests/compare_builds.sh OLD NEW [PATTERN]    programs; models whose name matches the pattern
#   VERBOSE=1 before it prints what both builds refuse
#
# For a redesign that must not change bits: OLD is the program of the commit before it. Every model with every strategy
# on 1 to 4 ranks, in shared memory and with --flat, and with each feature that changes what ranks do together. Prints a
# line for each difference and a count at the end. Takes about ten minutes on two cores.
# Asynchronous strategies have the bits of one worker alone.
set -uo pipefail
old=$(realpath "$1") new=$(realpath "$2") pattern=${3:-.}
export tutti=$new
. "$(dirname "$0")/cli/lib.sh" "$new" "$(dirname "$0")/.."

sentences 10 120 >plain.txt
pairs pairs 90
colours colours 40
mkdir documents
for split in train test; do
    sentences 9 90 | awk '{ print (NR % 2 ? "pos" : "neg") "\t" NR % 10 "\t" NR "\t" $0 }' >documents/$split.tsv
done
awk 'BEGIN { print "a,b,c,label"; s = 9
    for (i = 0; i < 200; i++) { for (k = 0; k < 3; k++) { s = (s * 16807) % 2147483647; printf "%d,", s % 97 }; print s % 2 } }' >table.csv

images="--data fashion-mnist --limit 72 --batch 24 --steps 3"
declare -A models=(
    [mlp]="mlp $images" [cnn]="cnn $images" [lenet]="lenet $images"
    [conv_autoencoder]="conv_autoencoder $images"
    [vgg11]="vgg11 --data ./colours --limit 24 --batch 12 --steps 2"
    [vgg11_bn]="vgg11_bn --data ./colours --limit 24 --batch 12 --steps 2"
    [resnet18]="resnet18 --width 4 $images --limit 24 --batch 12 --steps 2"
    [mobilenet_v2]="mobilenet_v2 --width 0.25 $images --limit 24 --batch 12 --steps 2"
    [nbow]="nbow --data ./documents --batch 32 --steps 3 --dim 20"
    [textcnn]="textcnn --data ./documents --batch 32 --steps 3 --dim 16 --filters 12"
    [seq2seq]="seq2seq --data ./pairs --batch 28 --steps 3 --hidden 12 --embedding 8 --attention bahdanau"
    [gpt]="gpt --data ./plain.txt --width 32 --layers 2 --heads 2 --length 24 --batch 16 --steps 3 --dropout 0.1"
    [bert]="bert --data ./plain.txt --size tiny --width 32 --length 24 --batch 16 --steps 3 --tokenizer words"
    [logistic]="logistic --data ./table.csv --batch 24 --steps 4"
    [tabular]="tabular --data ./table.csv --batch 24 --steps 4"
)
# What ranks do together: each line is compared between builds; = before it: with the first of its group, too.
layouts=(
    "--shards 4" "= --shards 4 -n 2 --strategy mirrored" "= --shards 4 -n 3 --strategy mirrored" "= --shards 4 -n 4 --strategy mirrored"
    "= --shards 4 -n 2 --flat --strategy multiworker" "= --shards 4 -n 3 --flat --strategy multiworker"
    "= --shards 4 -n 4 --flat --strategy multiworker" "= --shards 4 -n 2 --strategy central" "= --shards 4 --accumulate 1 --recompute"
    "= --shards 4 -n 2 --flat --strategy zero --split dp=2,zero=1" "= --shards 4 -n 3 --flat --strategy zero --split dp=3,zero=2"
    "= --shards 4 -n 4 --flat --strategy zero" "= --shards 4 -n 3 --flat --strategy parallax --tables serve"
    "= --shards 4 -n 2 --flat --strategy parallax --tables gather" "= --shards 4 -n 2 --strategy ps" "= --shards 4 -n 3 --meet ps:2 --flat"
    "= --shards 4 -n 2 --meet ps:2 --replicas 2" "= --shards 4 --sync async" "= --shards 4 --strategy ssp"
    "= --shards 4 -n 2 --strategy pipeline" "= --shards 4 -n 3 --strategy pipeline --pipeline gpipe"
    "= --shards 4 -n 4 --strategy hybrid" "= --shards 4 -n 4 --split pp=2,zero=3 --strategy hybrid --flat"
    "--shards 4 --clip 0.5 --optimizer adamw" "= --shards 4 --clip 0.5 --optimizer adamw -n 2"
    "= --shards 4 --clip 0.5 --optimizer adamw -n 3 --flat" "= --shards 4 --clip 0.5 --optimizer adamw -n 4 --flat --strategy zero"
    "= --shards 4 --clip 0.5 --optimizer adamw -n 2 --meet ps:2" "= --shards 4 --clip 0.5 --optimizer adamw -n 3 --flat --strategy parallax --tables serve"
    "--shards 4 --optimizer lamb --clip 0.5" "= --shards 4 --optimizer lamb --clip 0.5 -n 3" "= --shards 4 --optimizer lamb --clip 0.5 -n 2 --flat"
    "--shards 4 --optimizer lars" "= --shards 4 --optimizer lars -n 2" "= --shards 4 --optimizer lars -n 4 --flat"
    "--shards 4 --sync-batch-norm --threads 4" "= --shards 4 --sync-batch-norm -n 4" "= --shards 4 --sync-batch-norm -n 4 --flat"
    "--shards 4 -n 2 --flat --compress int8" "--shards 4 -n 3 --flat --compress powersgd:2 --clip 0.5" "--shards 4 -n 2 --flat --compress topk:0.05 --compress-after 1"
    "--shards 4 -n 2 --flat --compress bf16" "--shards 4 -n 2 --flat --compress onebit"
    "--shards 4 --split tp=2 -n 2" "= --shards 4 --split tp=2 -n 2 --flat" "= --shards 4 --split dp=2,tp=2 -n 4"
    "--shards 4 -n 2 --strategy localsgd --sync local:2" "--shards 4 -n 4 --strategy localsgd --sync local:2 --outer-lr 0.7 --outer-momentum 0.9"
    "--shards 4 -n 1 --strategy easgd --sync elastic:2" "--shards 4 -n 2 --bucket-mib 0.01 --no-factors"
)

runs=0 refusals=0
run() { # PROGRAM DIR ARGUMENTS...: its hash, or the text of its refusal
    local program=$1 dir=$2
    shift 2
    rm -rf "$dir"
    if timeout 120 "$program" train "$@" --seed 7 --quiet --out "$dir" 2>error.txt >/dev/null; then
        hash "$dir"
    else
        echo "exit $?: $(tr '\n' ' ' <error.txt)"
    fi
}
for model in $(printf '%s\n' "${!models[@]}" | sort | grep -E "$pattern"); do
    first=
    for layout in "${layouts[@]}"; do
        read -ra words <<<"${models[$model]} ${layout#=}"
        case $layout in *--threads*) ;; *) words+=(--threads 1) ;; esac
        a=$(run "$old" old "${words[@]}")
        b=$(run "$new" new "${words[@]}")
        runs=$((runs + 1))
        [ "$a" = "$b" ] || complain "${words[*]}: $a before, $b now"
        case $b in
        exit*)
            refusals=$((refusals + 1))
            [[ $b == "exit 2"* ]] || complain "${words[*]}: $b"
            [ -z "${VERBOSE:-}" ] || echo "refused: ${words[*]}: $b"
            continue
            ;;
        esac
        case $layout in
        =*) [ "$b" = "$first" ] || complain "${words[*]}: $b, one rank has $first" ;;
        *) first=$b ;;
        esac
    done
    echo "$model: $runs comparisons so far, $failures differences, $refusals refused by both"
done
finish
