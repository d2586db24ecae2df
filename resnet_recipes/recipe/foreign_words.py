"""A table of words of other programs, and what is typed here instead."""

from typing import NamedTuple


class Meaning(NamedTuple):
    """What to type, and what a reader from elsewhere should know."""

    words: str  # with {} for the value
    rule: str = ""


SIDE = "data.train_size={}"
GPUS = "gpus={}"
DEVICE = "launch.device={}"
DTYPE = "precision.dtype={}"
WEIGHTS = "model.weights={}"
AMP = Meaning("precision.dtype=auto", "is the default on a GPU: bf16, or fp16 on older ones")
PRETRAINED = Meaning(
    "model.weights=torchvision", "are weights to start from; the recipe finetune is made for it"
)

#: What is typed here, and the words for it of timm, torchvision's references, Lightning,
#: Ultralytics, Composer, Hydra, Hugging Face, Keras and fastai, and of habit.
_WORDS: tuple[tuple[str | Meaning, str], ...] = (
    # the command
    ("recipe={}", "c cn config config_file config_name recipe"),
    ("--recipes {}", "cd config_dir config_path"),
    ("--cfg", "info resolve"),
    ("-m", "multirun"),
    ("--verbose", "debug log_level v verbose vv"),
    ("--check", "fast_dev_run limit_train_batches limit_val_batches overfit_batches"),
    ("--resume {}", "checkpoint ckpt ckpt_path resume resume_from resume_from_checkpoint"),
    ("--resume auto", "auto_resume"),
    ("run={}", "experiment name run_name"),
    ("run.root={}", "default_root_dir out_dir output output_dir project save_dir save_folder"),
    (
        Meaning("resnet-recipes eval last", "is a command of its own, for a trained network"),
        "do_eval eval eval_only evaluate test_only validate",
    ),
    (Meaning("", "is a command: resnet-recipes estimate"), "profile profiler"),
    (
        Meaning("", "is a flag of 'resnet-recipes export': --push hf:USER/NAME"),
        "hub_model_id push_to_hub",
    ),
    (Meaning("", "is not a setting: resnet-train trains a classifier"), "do_train mode task"),
    (
        Meaning("", "is not needed: every run has a new folder"),
        "exist_ok force overwrite overwrite_output_dir",
    ),
    (
        Meaning("", "is not needed: the bar is for terminals, other output has lines"),
        "disable_tqdm enable_progress_bar no_progress q quiet silent",
    ),
    # length
    (
        "epochs={}",
        "epoch epochs max_epochs n_epochs nepochs num_epochs num_train_epochs total_epochs",
    ),
    ("max_duration={}ba ssr=1", "max_iters max_steps num_steps"),
    ("launch.max_wall={}s", "max_time time_limit"),
    (
        Meaning("", "is not a setting: it follows from the images and bs="),
        "samples_per_epoch steps_per_epoch",
    ),
    (
        Meaning("", "is not a setting: a run ends when its schedule does, or at stop_at_top1="),
        "cooldown_epochs early_stopping patience patience_epochs",
    ),
    # images
    (
        "data={}",
        "d data data_dir data_path data_root dataset dataset_name folder images path root train "
        "train_data train_dir traindir",
    ),
    (
        Meaning("", "is not a setting: val/ is found beside train/ in data="),
        "train_split val val_data val_dir valdir validation_data",
    ),
    ("data.val_share={}", "train_val_split val_ratio val_split valid_pct validation_split"),
    (
        Meaning("", "is not a setting: the classes are counted in the images"),
        "class_mode classes include_top nb_classes num_classes single_cls",
    ),
    (
        Meaning("", "is not a setting: images are normalised as for ImageNet"),
        "mean rescale std",
    ),
    (SIDE, "crop image_size img_size imgsz resolution target_size train_crop_size"),
    ("data.eval_size={}", "val_crop_size"),
    ("data.eval_resize={}", "val_resize_size"),
    (Meaning("data.train_size=224 data.eval_size=224", "is two settings here"), "input_size"),
    (
        Meaning(
            "data.eval_resize=256 data.eval_size=224",
            "is eval_size by eval_resize, in pixels, here",
        ),
        "crop_pct",
    ),
    ("data.flip=true", "fliplr hflip horizontal_flip"),
    ("data.backend={}", "backend loader"),
    ("data.prefetch={}", "prefetch_factor"),
    ("data.repeats={}", "aug_repeats ra_reps repeated_aug"),
    (
        "data.sampling=balanced",
        "balanced balanced_sampling oversample sampler weighted_sampler weightedrandomsampler",
    ),
    ("workers={}", "dataloader_num_workers j jobs n_jobs num_workers workers"),
    # batches
    (
        "bs={}",
        "b batch batch_size batchsize bs per_device_train_batch_size train_batch train_batch_size",
    ),
    ("batch.eval_size={}", "eval_batch_size per_device_eval_batch_size val_batch_size"),
    (
        Meaning("batch.bn_size=128", "follows from bs= and batch.bn_size=, the images of one pass"),
        "accumulate_grad_batches device_train_microbatch_size grad_accum grad_accum_steps "
        "gradient_accumulation_steps gradient_checkpointing",
    ),
    ("batch.bn_size=auto", "auto_find_batch_size auto_scale_batch_size"),
    (
        Meaning("", "is not needed: batch.bn_size images share statistics on any number of GPUs"),
        "dist_bn sync_bn",
    ),
    # the network, and where it starts
    ("model.name={}", "a arch architecture backbone model model_name model_name_or_path"),
    ("model.name=resnet{}", "depth model_depth"),
    ("model.in_channels={}", "in_chans input_channels"),
    ("model.in_channels=1", "gray grayscale grey"),
    ("model.zero_init_last_bn=true", "zero_init_residual"),
    (WEIGHTS, "finetune initial_checkpoint load load_path weights"),
    (PRETRAINED, "pretrained"),
    (
        "model.freeze=backbone model.weights=torchvision",
        "freeze freeze_backbone freeze_epochs freeze_layers",
    ),
    (
        Meaning("", "is not needed: the classifier is new if the classes are others"),
        "ignore_mismatched_sizes",
    ),
    # the optimizer and its rates
    ("optimizer={}", "opt optim optimizer"),
    ("lr={}", "base_lr learning_rate lr lr0 lr_max max_lr"),
    ("wd={}", "wd weight_decay"),
    ("optimizer.momentum={}", "momentum"),
    ("optimizer.clip_norm={}", "clip_grad grad_clip gradient_clip_val max_grad_norm"),
    ("optimizer.no_decay=norm_layers", "bias_weight_decay norm_weight_decay"),
    (
        Meaning("optimizer=adamw optimizer.betas=[0.9,0.999]", "is for adamw and lamb"),
        "adam_beta1 adam_beta2 beta1 beta2 betas opt_betas",
    ),
    (
        Meaning("optimizer=adamw optimizer.eps={}", "is for adamw and lamb"),
        "adam_epsilon eps opt_eps",
    ),
    (
        Meaning("", "is not a setting; a sweep tries several rates: -m lr=0.5,1,2"),
        "auto_lr_find lr_find",
    ),
    ("schedule={}", "lr_policy lr_scheduler lr_scheduler_type sched scheduler"),
    ("schedule=cosine", "cos_lr"),
    ("schedule.warmup={}ep", "lr_warmup_epochs warmup warmup_epochs"),
    ("schedule.warmup={}ba", "warmup_steps"),
    ("schedule.warmup={}dur", "pct_start warmup_ratio"),
    (
        Meaning("schedule.start=0.01", "warm-up is linear, from this share of the peak rate"),
        "lr_warmup_decay lr_warmup_method warmup_bias_lr warmup_lr",
    ),
    ("schedule.final={}", "lrf"),
    (Meaning("schedule.final=0.01", "is a share of the peak rate here"), "eta_min lr_min min_lr"),
    (
        Meaning("schedule=step schedule.milestones=[30ep,60ep]", "is a list of lengths here"),
        "decay_epochs decay_milestones lr_step_size lr_steps milestones step_size",
    ),
    ("schedule=step schedule.gamma={}", "decay_rate lr_gamma"),
    # methods
    ("methods.randaugment={{}}", "aa auto_augment autoaugment randaug"),
    ("methods.random_erasing.p={}", "erasing random_erase reprob"),
    ("methods.label_smoothing.smoothing={}", "label_smoothing smoothing"),
    ("methods.mixup.alpha={}", "mixup mixup_alpha"),
    ("methods.cutmix.alpha={}", "cutmix cutmix_alpha"),
    ("methods.stochastic_depth.drop_rate={}", "drop drop_path dropout"),
    ("methods.bce_loss={{}}", "bce"),
    ("methods.class_weights={{}}", "class_weight class_weights weighted_loss"),
    ("methods.distill.teacher={}", "distill distillation teacher teacher_model teacher_path"),
    ("methods.distill.share={}", "distillation_alpha kd_alpha"),
    ("methods.distill.temperature={}", "distillation_tau kd_temperature"),
    ("methods.ema={{}}", "ema model_ema use_ema"),
    ("~methods.ema", "no_ema"),
    ("methods.ema.update_interval={}ba", "model_ema_steps"),
    (
        Meaning("methods.ema.half_life=100ba", "is a half-life here: 0.693 / (1 - decay) batches"),
        "decay ema_decay model_ema_decay",
    ),
    (Meaning("methods.ema={{}}", "is not a method here; ema averages weights, too"), "swa"),
    (
        Meaning("", "is cross-entropy, unless a method changes it: bce_loss, class_weights"),
        "criterion loss loss_fn",
    ),
    (
        Meaning("", "is not a method here; 'resnet-recipes methods' lists them"),
        "aug_splits augmix color_jitter degrees flipud hsv_h hsv_s hsv_v jsd_loss mosaic recount "
        "remode rotation_range translate vertical_flip vflip zoom_range",
    ),
    # numbers, evaluation and what is kept
    (DTYPE, "amp_dtype dtype precision"),
    (AMP, "amp mixed_precision native_amp"),
    ("precision.dtype=bf16", "bf16"),
    ("precision.dtype=fp16", "fp16 half to_fp16"),
    ("precision.compile=true", "compile torch_compile torchcompile"),
    ("seed={}", "manual_seed random_seed seed seed_everything"),
    (
        Meaning("", "is not a setting: a seed repeats a run, on a CPU bit for bit"),
        "deterministic use_deterministic_algorithms",
    ),
    (
        "evaluation.interval={}ep",
        "check_val_every_n_epoch eval_every eval_interval val_check_interval val_interval",
    ),
    ("evaluation.interval={}ba", "eval_steps"),
    ("evaluation.flip=true", "tta"),
    (
        Meaning("", "is not a setting: top-1 accuracy is measured, and the last weights are kept"),
        "eval_metric load_best_model_at_end metric_for_best_model metrics monitor save_best",
    ),
    (
        "checkpoint.interval={}ep",
        "checkpoint_interval save_every save_freq save_interval save_period",
    ),
    ("checkpoint.interval={}ba", "save_steps"),
    ("checkpoint.keep={}", "checkpoint_hist save_top_k save_total_limit"),
    ("log.interval={}ba", "log_every_n_steps log_interval logging_steps print_freq"),
    ("log.to=[{}]", "log logger report_to"),
    ("log.to=[mlflow]", "mlflow"),
    ("log.to=[tensorboard]", "tensorboard"),
    ("log.to=[wandb]", "log_wandb wandb"),
    (
        Meaning("WANDB_PROJECT={} resnet-train ... log.to=[wandb]", "is an environment variable"),
        "wandb_project",
    ),
    # devices
    (DEVICE, "accelerator device"),
    ("launch.device=cpu", "cpu no_cuda use_cpu"),
    ("launch.device=cuda", "cuda"),
    (GPUS, "devices gpu gpu_ids gpus ngpus nproc_per_node num_gpus world_size"),
    (
        Meaning("", "is not needed: ranks find each other, also under torchrun and srun"),
        "ddp dist_url distributed local_rank master_port strategy",
    ),
    (
        Meaning(
            "",
            "is not a setting: torchrun, srun or a job of 'resnet-recipes job' starts several "
            "nodes",
        ),
        "nnodes nodes num_nodes rdzv",
    ),
    (
        Meaning("", "is not a setting: the program does so where it helps"),
        "benchmark callbacks channels_last enable_checkpointing no_prefetcher num_sanity_val_steps "
        "persistent_workers pin_mem pin_memory plots save use_multi_epochs_loader",
    ),
)

MEANINGS = {word: meaning for meaning, words in _WORDS for word in words.split()}
