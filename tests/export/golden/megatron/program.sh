# What every rank runs: Megatron-LM. Read by launch.sh.
export CUDA_DEVICE_MAX_CONNECTIONS=1
PROGRAM=(
    "${MEGATRON_LM:?the folder of your Megatron-LM checkout}/pretrain_gpt.py"
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 4
    --pipeline-model-parallel-layout 'Et*5|t*7|t*12|t*8L'
    --sequence-parallel
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
    --micro-batch-size 1
    --global-batch-size 16
    --bf16
    --grad-reduce-in-bf16
    --make-vocab-size-divisible-by 128
    --ckpt-format torch_dist
    --dist-ckpt-optim-fully-reshardable
    --save "${CHECKPOINTS:?a folder for checkpoints}" --load "$CHECKPOINTS" --save-interval 100
    --distributed-timeout-minutes 60
    ${DATA:---mock-data --tokenizer-type NullTokenizer --vocab-size 128255}
    ${TRAIN:---train-iters 100 --lr 1e-4 --log-interval 1}
)
