"""Names of Python that configuration files ask for: those that run code, and those that are ordinary there.

The ordinary ones are exact. A name that is in neither table is ``suspicious`` with its full name.
"""

from __future__ import annotations

import re

DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")

# Modules in which a configuration has no business, whatever the function: their first part.
DANGEROUS_ROOTS = frozenset({
    "os", "posix", "nt", "posixpath", "ntpath", "sys", "subprocess", "_posixsubprocess", "builtins",
    "__builtin__", "__builtins__", "shutil", "importlib", "imp", "runpy", "pickle", "_pickle", "cPickle", "dill",
    "cloudpickle", "marshal", "shelve", "socket", "socketserver", "urllib", "http", "ftplib", "smtplib",
    "telnetlib", "requests", "httpx", "aiohttp", "ctypes", "_ctypes", "cffi", "pty", "code", "codeop", "pdb",
    "bdb", "cProfile", "profile", "timeit", "trace", "webbrowser", "commands", "popen2", "asyncio",
    "multiprocessing", "_thread", "signal", "atexit", "inspect", "types", "operator", "_operator", "pkgutil",
    "zipimport", "pip", "ensurepip", "venv", "site", "pydoc", "doctest", "idlelib", "lib2to3", "distutils",
    "setuptools", "io", "_io", "paramiko", "fabric", "sh", "pexpect", "eval", "exec", "antigravity", "xmlrpc",
    "ssl",
})  # fmt: skip
# Of larger packages, the functions that load or run what a string names.
DANGEROUS = frozenset({
    "torch.load", "torch.hub.load", "torch.hub.load_state_dict_from_url", "torch.hub.download_url_to_file",
    "torch.ops.load_library", "torch.jit.load", "torch.package.PackageImporter", "torch.classes.load_library",
    "torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline", "torch.serialization.load",
    "torch.utils.data.datapipes.utils.decoder.basichandlers", "torch._inductor.codecache.compile_file",
    "joblib.load", "numpy.load", "numpy.fromfile", "numpy.testing._private.utils.runstring",
    "numpy.ctypeslib.load_library", "pandas.read_pickle", "pandas.eval", "yaml.load", "yaml.unsafe_load",
    "yaml.full_load", "hydra.utils.get_method", "hydra.utils.get_object", "hydra.utils.get_class",
    "hydra.utils.get_static_method", "hydra.utils.call", "hydra.utils.instantiate",
    "hydra._internal.utils._locate", "omegaconf.OmegaConf.load", "omegaconf.OmegaConf.register_new_resolver",
    "nemo.core.classes.common.import_class_by_path", "lightning.pytorch.utilities.model_helpers.getattr",
    "transformers.utils.import_utils._LazyModule",
    "transformers.dynamic_module_utils.get_class_from_dynamic_module",
    "diffusers.utils.get_class_from_dynamic_module", "keras.models.load_model",
    "tensorflow.keras.models.load_model", "tensorflow.saved_model.load", "tensorflow.load_library",
    "tensorflow.load_op_library", "tensorflow.py_function", "sympy.sympify",
    "sympy.parsing.sympy_parser.parse_expr", "IPython.get_ipython", "IPython.start_ipython", "fsspec.open",
})  # fmt: skip
DANGEROUS_LAST = frozenset({"__import__", "eval", "exec", "system", "popen", "Popen", "check_output", "getoutput",
                            "run_module", "run_path", "execfile"})  # fmt: skip


def is_dangerous(name: str) -> bool:
    """Whether a dotted name is, or leads through, one that runs code."""
    parts = name.split(".")
    return (
        parts[0] in DANGEROUS_ROOTS
        or name in DANGEROUS
        or parts[-1] in DANGEROUS_LAST
        or any(p.startswith("__") for p in parts)
        or any(p in ("os", "sys", "subprocess", "builtins", "importlib") for p in parts[1:])
    )


def _spread(*lines: str) -> frozenset[str]:
    """``module: A B C`` -> module.A, module.B, module.C"""
    return frozenset(
        f"{module}.{name}" for line in lines for module, _, names in [line.partition(": ")] for name in names.split()
    )


# Targets that training configurations of torch, Lightning, NeMo and latent diffusion name as a matter of course.
TARGETS = _spread(
    "torch.optim: Adam AdamW SGD RMSprop Adagrad Adadelta Adamax ASGD LBFGS NAdam RAdam Rprop  SparseAdam"
    " Adafactor Muon",
    "torch.optim.adam: Adam",
    "torch.optim.adamw: AdamW",
    "torch.optim.sgd: SGD",
    "torch.optim.lr_scheduler: StepLR MultiStepLR ExponentialLR CosineAnnealingLR ReduceLROnPlateau OneCycleLR CyclicLR"
    " LambdaLR LinearLR ConstantLR PolynomialLR CosineAnnealingWarmRestarts SequentialLR ChainedScheduler",
    "torch.nn: Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d BatchNorm1d BatchNorm2d LayerNorm GroupNorm"
    " RMSNorm Dropout Embedding LSTM GRU RNN MultiheadAttention TransformerEncoderLayer TransformerEncoder"
    " TransformerDecoderLayer TransformerDecoder Sequential ModuleList ModuleDict Identity ReLU GELU SiLU ELU Tanh"
    " Sigmoid Softmax LeakyReLU PReLU Mish Hardswish MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss"
    " BCELoss BCEWithLogitsLoss KLDivLoss CTCLoss CosineEmbeddingLoss TripletMarginLoss AvgPool2d MaxPool2d"
    " AdaptiveAvgPool2d Flatten Upsample",
    "torch.nn.modules.loss: CrossEntropyLoss MSELoss BCEWithLogitsLoss L1Loss NLLLoss",
    "torch: device dtype Generator float16 float32 bfloat16 tensor",
    "torch.utils.data: DataLoader RandomSampler SequentialSampler DistributedSampler TensorDataset ConcatDataset",
    "torchvision.transforms: Compose Resize CenterCrop RandomCrop RandomHorizontalFlip ToTensor Normalize ColorJitter"
    " RandomResizedCrop Grayscale RandomRotation",
    "torchmetrics: Accuracy MeanMetric MinMetric MaxMetric F1Score Precision Recall AUROC MeanSquaredError",
    "pytorch_lightning: Trainer LightningModule LightningDataModule",
    "pytorch_lightning.callbacks: ModelCheckpoint EarlyStopping LearningRateMonitor RichProgressBar RichModelSummary"
    " TQDMProgressBar StochasticWeightAveraging ModelSummary Timer",
    "pytorch_lightning.loggers: TensorBoardLogger WandbLogger CSVLogger MLFlowLogger",
    "pytorch_lightning.loggers.wandb: WandbLogger",
    "pytorch_lightning.strategies: DDPStrategy",
    "lightning.pytorch: Trainer LightningModule LightningDataModule",
    "lightning.pytorch.trainer: Trainer",
    "lightning.pytorch.callbacks: ModelCheckpoint EarlyStopping LearningRateMonitor RichProgressBar RichModelSummary"
    " TQDMProgressBar StochasticWeightAveraging ModelSummary Timer",
    "lightning.pytorch.loggers: TensorBoardLogger WandbLogger CSVLogger MLFlowLogger",
    "lightning.pytorch.loggers.tensorboard: TensorBoardLogger",
    "lightning.pytorch.loggers.wandb: WandbLogger",
    "lightning.pytorch.loggers.csv_logs: CSVLogger",
    "builtins: dict list tuple set frozenset int float str bool bytes range slice complex",
    "collections: OrderedDict defaultdict Counter deque",
    "pathlib: Path PosixPath PurePath PurePosixPath",
    "datetime: timedelta datetime date",
    "omegaconf: DictConfig ListConfig",
    "omegaconf.dictconfig: DictConfig",
    "omegaconf.listconfig: ListConfig",
    "transformers: AutoModel AutoTokenizer AutoConfig AutoModelForCausalLM AutoModelForSequenceClassification"
    " AutoModelForMaskedLM AutoModelForSeq2SeqLM AutoFeatureExtractor AutoProcessor BertModel T5EncoderModel"
    " CLIPTextModel CLIPTokenizer get_cosine_schedule_with_warmup get_linear_schedule_with_warmup",
    "diffusers: AutoencoderKL UNet2DConditionModel UNet2DModel DDPMScheduler DDIMScheduler DPMSolverMultistepScheduler"
    " EulerDiscreteScheduler FlowMatchEulerDiscreteScheduler PNDMScheduler LMSDiscreteScheduler",
    "nemo.collections.asr.modules: AudioToMelSpectrogramPreprocessor AudioToMFCCPreprocessor SpectrogramAugmentation"
    " ConformerEncoder ConvASREncoder ConvASRDecoder ConvASRDecoderClassification SpeakerDecoder RNNTDecoder RNNTJoint"
    " SqueezeformerEncoder RNNEncoder StatelessTransducerDecoder LSTMDecoder SampledRNNTJoint MaskedPatchAugmentation"
    " CropOrPadSpectrogramAugmentation",
    "nemo.collections.asr.modules.rnnt: RNNTDecoder RNNTJoint SampledRNNTJoint StatelessTransducerDecoder",
    "nemo.collections.asr.models: EncDecCTCModel EncDecCTCModelBPE EncDecRNNTModel EncDecRNNTBPEModel"
    " EncDecHybridRNNTCTCBPEModel EncDecSpeakerLabelModel EncDecClassificationModel EncDecMultiTaskModel"
    " SortformerEncLabelModel ClusteringDiarizer NeuralDiarizer",
    "nemo.collections.asr.models.ctc_bpe_models: EncDecCTCModelBPE",
    "nemo.collections.asr.models.ctc_models: EncDecCTCModel",
    "nemo.collections.asr.models.rnnt_bpe_models: EncDecRNNTBPEModel",
    "nemo.collections.asr.models.hybrid_rnnt_ctc_bpe_models: EncDecHybridRNNTCTCBPEModel",
    "nemo.collections.asr.models.aed_multitask_models: EncDecMultiTaskModel",
    "nemo.collections.asr.models.label_models: EncDecSpeakerLabelModel",
    "nemo.collections.asr.parts.submodules.token_classifier: TokenClassifier",
    "nemo.collections.asr.parts.submodules.transducer_decoders: AbstractTransducerDecoding",
    "nemo.collections.asr.losses: CTCLoss RNNTLoss AngularSoftmaxLoss",
    "nemo.collections.common.losses: CrossEntropyLoss SmoothedCrossEntropyLoss",
    "nemo.collections.common.tokenizers: AggregateTokenizer SentencePieceTokenizer",
    "nemo.collections.tts.models: FastPitchModel HifiGanModel Tacotron2Model UnivNetModel WaveGlowModel VitsModel"
    " AudioCodecModel",
    "nemo.collections.tts.modules.transformer: FFTransformerEncoder FFTransformerDecoder",
    "nemo.collections.tts.modules.fastpitch: TemporalPredictor FastPitchModule",
    "nemo.collections.tts.modules.aligner: AlignmentEncoder",
    "nemo.collections.tts.modules.hifigan_modules: Generator",
    "nemo.collections.tts.data.dataset: TTSDataset VocoderDataset",
    "nemo.collections.tts.torch.g2ps: EnglishG2p IPAG2P",
    "nemo.collections.tts.g2p.models.en_us_arpabet: EnglishG2p",
    "nemo.collections.tts.g2p.models.i18n_ipa: IpaG2p",
    "nemo.collections.common.tokenizers.text_to_speech.tts_tokenizers: EnglishPhonemesTokenizer EnglishCharsTokenizer"
    " IPATokenizer",
    "nemo.collections.nlp.models.language_modeling.megatron_gpt_model: MegatronGPTModel",
    "nemo.lightning: Trainer MegatronStrategy",
    "nemo.lightning.io: TrainerContext",
    "nemo_text_processing.text_normalization.normalize: Normalizer",
    "ldm.models.diffusion.ddpm: LatentDiffusion LatentInpaintDiffusion LatentDepth2ImageDiffusion DDPM DiffusionWrapper"
    " LatentUpscaleDiffusion LatentFinetuneDiffusion ImageEmbeddingConditionedLatentDiffusion",
    "ldm.models.autoencoder: AutoencoderKL VQModel VQModelInterface IdentityFirstStage",
    "ldm.modules.diffusionmodules.openaimodel: UNetModel EncoderUNetModel",
    "ldm.modules.diffusionmodules.upscaling: ImageConcatWithNoiseAugmentation",
    "ldm.modules.encoders.modules: FrozenCLIPEmbedder FrozenOpenCLIPEmbedder BERTEmbedder ClassEmbedder"
    " TransformerEmbedder SpatialRescaler FrozenT5Embedder FrozenOpenCLIPImageEmbedder FrozenCLIPT5Encoder",
    "ldm.modules.losses: LPIPSWithDiscriminator",
    "ldm.modules.losses.contperceptual: LPIPSWithDiscriminator",
    "ldm.lr_scheduler: LambdaLinearScheduler LambdaWarmUpCosineScheduler",
    "cldm.cldm: ControlLDM ControlNet ControlledUnetModel",
    "sgm.models.diffusion: DiffusionEngine",
    "sgm.models.autoencoder: AutoencoderKL AutoencoderKLInferenceWrapper AutoencodingEngine",
    "sgm.modules: GeneralConditioner",
    "sgm.modules.encoders.modules: FrozenCLIPEmbedder FrozenOpenCLIPEmbedder2 ConcatTimestepEmbedderND",
    "sgm.modules.diffusionmodules.openaimodel: UNetModel",
    "sgm.modules.diffusionmodules.denoiser: DiscreteDenoiser Denoiser",
    "sgm.modules.diffusionmodules.denoiser_scaling: EpsScaling VScaling EDMScaling",
    "sgm.modules.diffusionmodules.denoiser_weighting: EpsWeighting EDMWeighting",
    "sgm.modules.diffusionmodules.discretizer: LegacyDDPMDiscretization EDMDiscretization",
    "sgm.modules.diffusionmodules.sampling: EulerEDMSampler",
    "sgm.modules.diffusionmodules.guiders: VanillaCFG",
    "taming.models.vqgan: VQModel GumbelVQ",
    "taming.modules.losses.vqperceptual: VQLPIPSWithDiscriminator",
)

# What YAML written by Lightning, OmegaConf and PyYAML's own dumper names, and what holds data only.
YAML_DATA = frozenset({
    "collections.OrderedDict", "collections.defaultdict", "collections.deque", "argparse.Namespace",
    "pathlib.Path", "pathlib.PosixPath", "pathlib.PurePosixPath", "pathlib.WindowsPath",
    "pathlib.PureWindowsPath", "pathlib._local.PosixPath", "pathlib._local.WindowsPath", "datetime.datetime",
    "datetime.date", "datetime.timedelta", "datetime.timezone", "decimal.Decimal", "fractions.Fraction",
    "uuid.UUID", "builtins.set", "builtins.frozenset", "builtins.complex", "builtins.bytearray", "builtins.range",
    "builtins.slice", "builtins.dict", "builtins.list", "builtins.tuple", "builtins.int", "builtins.float",
    "builtins.str", "builtins.bool", "builtins.bytes", "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar", "numpy.dtype", "torch.device", "torch.Size",
    "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray",
    "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig", "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata", "omegaconf.nodes.AnyNode", "typing.Any",
    "lightning.fabric.utilities.data.AttributeDict", "lightning_fabric.utilities.data.AttributeDict",
    "pytorch_lightning.utilities.parsing.AttributeDict", "lightning.pytorch.utilities.parsing.AttributeDict",
    "easydict.EasyDict", "yacs.config.CfgNode",
    # Functions of documentation tools, named and not called (mkdocs.yml).
    "materialx.emoji.twemoji", "materialx.emoji.to_svg", "material.extensions.emoji.twemoji",
    "material.extensions.emoji.to_svg", "pymdownx.superfences.fence_code_format",
    "pymdownx.superfences.fence_div_format", "pymdownx.slugs.uslugify",
    "pymdownx.arithmatex.fence_mathjax_format", "mermaid2.fence_mermaid", "mermaid2.fence_mermaid_custom",
    "pymdownx.emoji.twemoji", "pymdownx.emoji.to_svg", "pymdownx.emoji.gemoji", "pymdownx.emoji.to_png",
})  # fmt: skip

# The parent libraries that PEFT's auto_mapping names (peft, "AutoPeftModel"): where the class of the base model lives.
PEFT_PARENTS = frozenset(
    {"transformers", "diffusers", "timm", "sentence_transformers", "peft", "torch.nn", "open_clip"}
)
# PEFT writes the module of the base model's class: one of the library's own model files.
PEFT_MODULE = re.compile(r"transformers\.models\.([a-z0-9_]+)\.modeling_[a-z0-9_]+|timm\.models\.[a-z0-9_]+"
                         r"|diffusers\.models\.(?:[a-z0-9_]+\.){0,3}[a-z0-9_]+")  # fmt: skip


def is_peft_parent(name: str) -> bool:
    """Whether PEFT may import ``name`` for the class of the base model, and it is an ordinary module of models."""
    return name in PEFT_PARENTS or PEFT_MODULE.fullmatch(name) is not None


# What modules.json of sentence-transformers names.
SENTENCE_MODULES = _spread(
    "sentence_transformers.models: Transformer Pooling Normalize Dense LayerNorm Dropout CNN LSTM BoW WordEmbeddings"
    " WordWeights WeightedLayerPooling StaticEmbedding Asym Router CLIPModel MLMTransformer SpladePooling Module"
    " InputModule",
    "sentence_transformers.models.Transformer: Transformer",
    "sentence_transformers.models.Pooling: Pooling",
    "sentence_transformers.models.Normalize: Normalize",
    "sentence_transformers.models.Dense: Dense",
    "sentence_transformers.models.StaticEmbedding: StaticEmbedding",
    "sentence_transformers.sparse_encoder.models: MLMTransformer SpladePooling SparseAutoEncoder SparseStaticEmbedding",
    "sentence_transformers.base.modules.transformer: Transformer",
    "sentence_transformers.base.modules.dense: Dense",
    "sentence_transformers.base.modules.router: Router",
    "sentence_transformers.sentence_transformer.modules.pooling: Pooling",
    "sentence_transformers.sentence_transformer.modules.normalize: Normalize",
    "sentence_transformers.sentence_transformer.modules.dense: Dense",
    "sentence_transformers.sentence_transformer.modules.static_embedding: StaticEmbedding",
    "pylate.models.Dense: Dense",
)

# The libraries that model_index.json of diffusers names; and the folders of diffusers.pipelines that hold components.
DIFFUSERS_LIBRARIES = frozenset({
    "diffusers", "transformers", "onnxruntime", "optimum", "flax", "k_diffusion", "open_clip", "sentencepiece",
    "peft", "allegro", "alt_diffusion", "audioldm2", "blip_diffusion", "bria", "cogvideo", "cogvideox",
    "consisid", "controlnet", "deepfloyd_if", "flux", "hunyuandit", "kandinsky", "kandinsky5", "latent_diffusion",
    "ledits_pp", "ltx", "ltx2", "marigold", "musicldm", "omnigen", "paint_by_example", "pixart_alpha",
    "semantic_stable_diffusion", "shap_e", "spectrogram_diffusion", "stable_audio", "stable_cascade",
    "stable_diffusion", "stable_diffusion_safe", "stable_diffusion_xl", "stable_diffusion_3",
    "text_to_video_synthesis", "unclip", "unidiffuser", "versatile_diffusion", "visualcloze", "wuerstchen", "wan",
    "qwenimage", "sana", "lumina", "lumina2", "hidream_image", "aura_flow", "cosmos", "mochi", "latte",
    "easyanimate", "skyreels_v2", "chroma", "prx",
})  # fmt: skip
