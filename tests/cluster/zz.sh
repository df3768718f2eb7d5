. "$(dirname "$0")/lib.sh"
add_bridge; add_host alpha 1; add_host beta 2; make_entrance
for i in 1 2 3 4 5 6 7 8; do
  s=$EPOCHREALTIME
  timeout 8 "$work/on" alpha "$tutti" train mlp -n 4 --hosts alpha,beta --mpirun $starter --launch-agent "$work/agent" --out a$i || {
    echo "hang $i"; 
  }
  echo "$i $(echo "$EPOCHREALTIME - $s" | bc)"
done
