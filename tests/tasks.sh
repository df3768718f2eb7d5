# tasks.sh - sourced: what every strategy runs is what `tutti graph --after lower` lists.
#
# The caller has sourced a lib.sh and defines start RANKS WORKERS ARGUMENTS..., which trains, and the list `ways`: in
# shared memory (""), as if each rank were on a machine of its own (--flat), or both.
command -v python3 >/dev/null || skip "no python3"
has_data fashion-mnist || skip "data set fashion-mnist is not here"

mkdir documents
for split in train test; do
    sentences 9 60 | awk '{ print (NR % 2 ? "pos" : "neg") "\t" NR % 10 "\t" NR "\t" $0 }' >documents/$split.tsv
done

images="--data fashion-mnist --batch 24 --shards 4"
words="nbow --data ./documents --batch 24 --shards 4 --dim 20"
checked=0

# check_tasks RANKS WORKERS ARGUMENTS...: ranks that are no workers are servers, whose tasks are compared, too
check_tasks() {
    local ranks=$1 workers=$2 shared=() files=() r
    shift 2
    case " $* " in # ranks that share memory, as far as they run one step together
    *" --flat "* | *pipeline* | *local* | *gossip* | *ps:*) ;;
    *hybrid*) shared=(--groups 0,1/2,3) ;;
    *tp=2*) shared=(--groups 0,2/1,3) ;;
    *) shared=(--groups 0,1) ;;
    esac
    rm -rf traced
    start "$ranks" "$workers" "$@" --limit 96 --steps 4 --threads 1 --seed 7 --quiet --trace --trace-steps 1:4 --out traced ||
        complain "train $*"
    for ((r = 0; r < ranks; r++)); do # the last are servers
        "$tutti" graph "$@" -n "$workers" --threads 1 --after lower --rank $r --format json >rank-$r.json || complain "graph $*"
        files+=("rank-$r.json")
    done
    python3 "$root/tests/tasks.py" "${shared[@]}" traced/trace.json "${files[@]}" >tasks.txt || complain "$*: $(cat tasks.txt)"
    checked=$((checked + 1))
}

for flat in "${ways[@]}"; do
    if [ -z "$flat" ]; then
        check_tasks 2 2 mlp $images --strategy mirrored
        check_tasks 2 2 mlp $images --strategy mirrored --clip 0.5 --optimizer lamb
        check_tasks 2 2 mlp $images --strategy central
    else
        check_tasks 2 2 mlp $images $flat --strategy multiworker
        check_tasks 2 2 mlp $images $flat --strategy multiworker --clip 0.5 --optimizer lamb
        check_tasks 2 2 mlp $images $flat --compress int8
        for zero in 1 2 3; do check_tasks 2 2 mlp $images $flat --strategy zero --split dp=2,zero=$zero; done
        for way in gather serve; do check_tasks 2 2 $words $flat --strategy parallax --tables $way; done
    fi
    check_tasks 2 2 $words $flat --clip 0.5
    check_tasks 2 2 resnet18 --width 4 --data fashion-mnist --batch 12 --shards 2 $flat --sync-batch-norm
    check_tasks 3 2 mlp $images $flat --strategy ps --meet ps:1
    check_tasks 4 2 mlp $images $flat --strategy ps --meet ps:2 --clip 0.5
    check_tasks 3 2 mlp $images $flat --strategy asgd --meet ps:1
    check_tasks 3 2 mlp $images $flat --strategy ssp --meet ps:1
    check_tasks 3 2 mlp $images $flat --strategy easgd --sync elastic:2 --meet ps:1
    check_tasks 2 2 mlp $images $flat --strategy localsgd --sync local:2
    check_tasks 4 4 mlp $images $flat --strategy gossip
    check_tasks 2 2 mlp $images $flat --strategy pipeline
    check_tasks 4 4 mlp $images $flat --strategy hybrid
    check_tasks 4 4 mlp $images $flat --split dp=2,tp=2
done
[ $checked -ge 13 ] || complain "$checked layouts"
