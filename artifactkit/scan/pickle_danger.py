"""Known ways to run code from a pickle, each with its reason. What is neither here nor data is merely ``suspicious``.

``MODULES`` deny a module and everything below it, by dotted prefix; ``NAMES`` are full names, ``PARTS`` names that are
telling in whatever module. Sources: CPython's library reference, the public advisories of picklescan, fickling and
modelscan, and the modules' own code.
"""

from __future__ import annotations

from .pickle_names import SAFE, TRUSTED

PROGRAM = "starts a program or a shell"
CODE = "evaluates or builds Python code"
IMPORT = "imports a module, or looks a name up, by text"
ATTRIBUTE = "reaches any attribute by its name"
LOADER = "loads another pickle, or an object by its description"
FILES = "opens, writes or removes files"
NETWORK = "talks over the network"
NATIVE = "loads native code or writes to memory"
LATER = "runs a callable later, or in a thread or process"
CARRIER = "calls the callable that it is given"
INTERPRETER = "changes the interpreter, or what protects it"
DYNAMIC = "rebuilds Python functions and classes from code in the file"

MODULES: dict[str, str] = {}
NAMES: dict[str, str] = {}


def _modules(reason: str, names: str) -> None:
    MODULES.update(dict.fromkeys(names.split(), reason))


def _names(reason: str, module: str, names: str) -> None:
    NAMES.update((f"{module}.{name}", reason) for name in names.split())


_modules(
    PROGRAM,
    "os posix nt posixpath ntpath subprocess pty commands popen2 _posixsubprocess _winapi msvcrt webbrowser "
    "antigravity pexpect ptyprocess sh plumbum fabric fabric2 invoke paramiko psutil gevent.subprocess eventlet.green "
    "imaplib _osx_support _aix_support _pyrepl test.support test.libregrtest test.test_support "
    "_testcapi _testinternalcapi turtledemo cgi cgitb platform getpass "
    "sysconfig _sysconfigdata subprocess32 asyncio.subprocess distutils setuptools pkg_resources pip _distutils_hack "
    "wheel easy_install ensurepip venv virtualenv conda pipenv numpy.distutils numpy.f2py "
    "ansible docker crontab tkinter Tkinter _tkinter idlelib turtle py.process py._process tox click.testing "
    "torch._strobelight django.core.management accelerate.commands PIL.ImageShow PIL.ImageGrab test.regrtest",
)
_modules(
    CODE,
    "code codeop pdb bdb profile cProfile _lsprof pstats trace tracemalloc doctest unittest timeit runpy compileall "
    "py_compile lib2to3 dis ast symtable _ast _symtable marshal "
    "rlcompleter pydoc pyclbr cmd pytest _pytest nose nose2 IPython ipykernel jupyter_client nbconvert "
    "nbformat execnet cython Cython pyximport numexpr sympy jinja2 mako tornado.template "
    "django.template chameleon genshi RestrictedPython asteval simpleeval numba torch._dynamo torch._inductor "
    "torch.fx torch.utils.bottleneck torch.utils._config_module torch._functorch torch.testing torch.utils.benchmark "
    "torch.utils.cpp_extension torch.fx.experimental torch.utils.collect_env torch._export torch.compiler "
    "torch.utils.data.datapipes.utils.decoder torch.distributed.elastic torch.distributed.launcher "
    "torch.distributed.run torch.multiprocessing torch.distributed.rpc torch.onnx torch.utils.hipify "
    "torch.utils.tensorboard torch._sources torch.package torch.hub torch.utils.model_zoo torch.utils.model_dump "
    "torch.ops torch._ops torch._classes torch.classes torch.library "
    "numpy.testing numpy.ctypeslib numpy.core._internal numpy._core._internal scipy._lib._ccallback "
    "torch.distributed.nn.jit torch._numpy.testing hotshot compiler rexec Bastion",
)
_modules(
    IMPORT,
    "importlib _frozen_importlib _frozen_importlib_external imp pkgutil zipimport modulefinder zipapp "
    "importlib_metadata importlib_resources inspect zope.dottedname werkzeug.utils django.utils.module_loading "
    "hydra.utils stevedore pluggy lazy_loader lazy_import _imp ihooks imputil",
)
_modules(ATTRIBUTE, "operator _operator")
_modules(
    LOADER,
    "pickle _pickle cPickle pickletools pickle5 dill cloudpickle joblib.externals.cloudpickle joblib.externals.loky "
    "ray.cloudpickle pyspark.cloudpickle pyspark.serializers jsonpickle shelve hickle klepto pyro Pyro4 Pyro5 rpyc "
    "serpent anyconfig deepdish sklearn.externals.joblib.externals mlflow.pyfunc mlflow.sklearn bentoml skops.io "
    "torch._weights_only_unpickler yaml.loader yaml.cyaml keras.src.saving tensorflow.python.keras.saving",
)
_modules(
    FILES,
    "shutil tempfile fileinput linecache tarfile zipfile gzip bz2 lzma zlib.open dbm sqlite3 mmap glob fnmatch filecmp "
    "logging.handlers logging.config fsspec smart_open s3fs gcsfs mailbox netrc aiofiles "
    "_sqlite3 _dbm _gdbm gdbm anydbm dumbdbm dbhash bsddb whichdb xml.sax xml.dom xml.etree.ElementInclude fcntl "
    "termios tabnanny json.tool keras.src.utils.file_utils lmdb",
)
_modules(
    NETWORK,
    "socket _socket ssl _ssl socketserver urllib http httplib urllib2 smtplib smtpd ftplib poplib nntplib telnetlib "
    "xmlrpc asyncore asynchat wsgiref requests httpx aiohttp urllib3 websocket websockets pycurl boto3 botocore "
    "google.cloud azure.storage huggingface_hub wget gdown select selectors grpc zmq twisted pymongo redis "
    "psycopg2 socks scapy",
)
_modules(
    NATIVE,
    "ctypes _ctypes _ctypes_test cffi _cffi_backend faulthandler _xxsubinterpreters _interpreters interpreters "
    "_interpqueues _interpchannels _xxinterpchannels concurrent.interpreters pycuda cupy.cuda.compiler pybind11 "
    "tensorrt tvm.runtime.module win32api win32com win32process pywintypes winreg _winreg objc dl",
)
_modules(
    LATER,
    "atexit signal threading _thread thread dummy_threading _dummy_thread multiprocessing _multiprocessing billiard "
    "multiprocess pathos concurrent asyncio sched celery rq dask.distributed distributed ray gevent "
    "greenlet eventlet trio anyio curio uvloop apscheduler huey luigi _signal _asyncio",
)
_modules(
    INTERPRETER,
    "sys site usercustomize sitecustomize gc resource syslog readline _sitebuiltins "
    "fickling picklescan modelscan modelaudit artifactkit __builtins__",
)

_names(
    CODE, "builtins",
    "eval exec compile execfile input breakpoint help __build_class__ raw_input vars globals locals",
)  # fmt: skip
_names(IMPORT, "builtins", "__import__ reload __loader__ __spec__")
_names(ATTRIBUTE, "builtins", "getattr setattr delattr")
_names(FILES, "builtins", "open file")
_names(INTERPRETER, "builtins", "exit quit copyright credits license __debug__")
_names(CARRIER, "builtins", "map filter apply reduce")
_names(
    CARRIER, "functools",
    "reduce partial partialmethod singledispatch singledispatchmethod lru_cache cache wraps update_wrapper "
    "cached_property cmp_to_key total_ordering _lru_cache_wrapper",
)  # fmt: skip
_names(CARRIER, "_functools", "reduce partial cmp_to_key _lru_cache_wrapper")
_names(
    CARRIER, "itertools",
    "starmap accumulate takewhile dropwhile filterfalse groupby imap ifilter ifilterfalse",
)  # fmt: skip
_names(CODE, "types", "CodeType FunctionType LambdaType ModuleType MethodType new_class prepare_class "
       "DynamicClassAttribute coroutine GeneratorType FrameType resolve_bases CellType _GeneratorWrapper "
       "BuiltinFunctionType ClassMethodDescriptorType MethodWrapperType")  # fmt: skip
_names(CODE, "new", "code function instancemethod module classobj")
_names(CODE, "typing", "ForwardRef get_type_hints _eval_type evaluate_forward_ref")
_names(CODE, "annotationlib", "ForwardRef call_evaluate_function call_annotate_function")
_names(CODE, "dataclasses", "make_dataclass _create_fn _process_class")
_names(CODE, "string", "Formatter")
_names(CODE, "ensurepip", "bootstrap")
_names(CARRIER, "contextlib", "ExitStack AsyncExitStack")
_names(CODE, "gettext", "c2py GNUTranslations translation install")
_names(CODE, "flask", "render_template_string")
_names(CODE, "torch.jit._state", "_python_cu")
_names(CODE, "torch._jit_internal", "createResolutionCallbackFromEnv createResolutionCallbackFromClosure "
       "createResolutionCallbackFromFrame")  # fmt: skip
_names(IMPORT, "warnings", "_getcategory _setoption _processoptions")
_names(IMPORT, "torch.utils._import_utils", "import_dill dill_available")
_names(CARRIER, "curses", "wrapper")
_names(CARRIER, "torch.utils._pytree", "tree_map tree_map_ tree_map_only tree_all tree_any")
_names(CARRIER, "jax", "pure_callback debug.callback experimental.io_callback experimental.host_callback.call")
_names(CARRIER, "tensorflow.raw_ops", "PyFunc PyFuncStateless EagerPyFunc")
_names(PROGRAM, "click", "launch edit")
_names(PROGRAM, "typer", "launch")
_names(FILES, "tokenize", "open")
_names(FILES, "configparser", "ConfigParser.read RawConfigParser.read")
_names(FILES, "h5py", "File")
_names(FILES, "PIL.Image", "open")
_names(FILES, "cv2", "imread imwrite")
_names(LOADER, "omegaconf", "OmegaConf.load OmegaConf.save")
_names(LOADER, "omegaconf.omegaconf", "OmegaConf.load OmegaConf.save")
_names(LOADER, "datasets", "load_dataset load_from_disk")
_names(CODE, "pandas.core.frame", "DataFrame.eval DataFrame.query")
_names(FILES, "pandas.core.frame", "DataFrame.to_pickle DataFrame.to_csv")
_names(LATER, "weakref", "finalize WeakMethod")
_names(CARRIER, "copyreg", "pickle constructor add_extension remove_extension clear_extension_cache")
_names(INTERPRETER, "copyreg", "dispatch_table _extension_registry _inverted_registry _extension_cache")
_names(CARRIER, "copy", "_reconstruct")
_names(CARRIER, "uuid", "_get_command_stdout _popen _load_system_functions getnode _find_mac _arp_getnode "
       "_ifconfig_getnode _ip_getnode _netstat_getnode _lanscan_getnode _ipconfig_getnode main")  # fmt: skip
_names(FILES, "pathlib", "Path.write_text Path.write_bytes Path.open Path.unlink Path.rename Path.replace Path.touch "
       "Path.mkdir Path.rmdir Path.symlink_to Path.chmod Path.read_text Path.read_bytes")  # fmt: skip
for _module in ("io", "_io", "_pyio"):
    _names(FILES, _module, "open open_code FileIO OpenWrapper TextIOWrapper BufferedReader BufferedWriter "
           "BufferedRandom BufferedRWPair")  # fmt: skip
_names(FILES, "codecs", "open EncodedFile")
_names(CARRIER, "codecs", "register register_error lookup")
_names(CARRIER, "_codecs", "register register_error lookup")
_names(FILES, "logging", "FileHandler basicConfig StreamHandler Handler shutdown _srcfile")
_names(FILES, "xml.etree.ElementTree", "parse ElementTree")
_names(FILES, "argparse", "FileType ArgumentParser")
_names(FILES, "json", "load dump")
_names(FILES, "numpy", "fromfile save savez savez_compressed savetxt loadtxt genfromtxt fromregex DataSource tofile "
       "open_memmap")  # fmt: skip
_names(LOADER, "numpy", "load lib.npyio.load lib.format.read_array")
for _module in ("numpy.lib.npyio", "numpy.lib._npyio_impl", "numpy.lib.format", "numpy.lib._format_impl"):
    _names(LOADER, _module, "load NpzFile read_array open_memmap save savez DataSource genfromtxt loadtxt savetxt "
           "fromregex zipfile_factory")  # fmt: skip
_names(FILES, "numpy.lib._datasource", "open DataSource Repository")
_names(CARRIER, "numpy", "vectorize frompyfunc apply_along_axis apply_over_axes piecewise fromfunction fromiter "
       "deprecate safe_eval source info lookfor show_config test")  # fmt: skip
_names(CODE, "numpy.lib.utils", "safe_eval source info lookfor")
_names(CARRIER, "numpy.lib.shape_base", "apply_along_axis apply_over_axes")
_names(CARRIER, "numpy.lib.function_base", "vectorize piecewise")
for _module in ("numpy.core", "numpy._core"):
    _names(IMPORT, _module, "_ufunc_reconstruct _ufunc_reduce _DType_reconstruct")
    _names(CARRIER, f"{_module}.multiarray", "fromfile frompyfunc fromiter set_numeric_ops")
    _names(CARRIER, f"{_module}._multiarray_umath", "fromfile frompyfunc fromiter")
_names(LOADER, "torch", "load jit.load hub.load package.PackageImporter export.load")
_names(LOADER, "torch.serialization", "load _load _legacy_load _open_file _open_file_like _open_zipfile_reader "
       "add_safe_globals register_package save _save set_default_load_endianness skip_data load_module_mapping "
       "validate_cuda_device _is_zipfile os shutil tempfile pickle")  # fmt: skip
_names(LOADER, "torch.jit", "load script trace CompilationUnit _script _serialization.load")
_names(LOADER, "torch.jit._serialization", "load jit_module_from_flatbuffer")
_names(LOADER, "torch.jit.unsupported_tensor_ops", "execWrapper")
_names(CODE, "torch.jit", "unsupported_tensor_ops.execWrapper frontend _check annotations")
_names(CODE, "torch.jit.annotations", "parse_type_line EvalEnv try_ann_to_type")
_names(CODE, "torch.jit.frontend", "parse_def get_jit_def")
_names(LOADER, "torch.export", "load save")
_names(NATIVE, "torch", "classes.load_library ops.load_library compile from_file save _C._load_library "
       "_C.import_ir_module utils.cpp_extension.load")  # fmt: skip
_names(CODE, "torch._utils", "_import_dotted_name classproperty _get_device_module ExceptionWrapper "
       "_LazySeedTracker")  # fmt: skip
_names(IMPORT, "torch._utils_internal", "resolve_library_path get_file_path")
_names(FILES, "torch.storage", "from_file _TypedStorage.from_file UntypedStorage.from_file _new_shared_filename")
_names(LOADER, "torch.distributed", "_object_to_tensor _tensor_to_object recv_object_list")
_names(LOADER, "torch.distributed.distributed_c10d", "_tensor_to_object _object_to_tensor")
_names(CODE, "torch._C", "_jit_script_compile import_ir_module _import_ir_module_from_package")
_names(CARRIER, "torch.utils.checkpoint", "checkpoint checkpoint_sequential")
_names(CARRIER, "torch.nn.parallel", "data_parallel parallel_apply")
_names(CODE, "torch.guards", "GuardBuilder.get")
_names(LOADER, "pandas", "read_pickle read_csv read_html read_json read_hdf read_sql read_excel read_parquet "
       "read_feather read_xml read_table read_clipboard to_pickle eval HDFStore ExcelFile DataFrame.eval "
       "DataFrame.query DataFrame.to_pickle DataFrame.to_csv")  # fmt: skip
for _module in ("pandas.io", "pandas.compat.pickle_compat", "pandas.core.computation", "pandas.util._test_decorators",
                "pandas.util.testing", "pandas.testing"):  # fmt: skip
    MODULES[_module] = LOADER
_names(LOADER, "joblib", "load dump Memory Parallel delayed numpy_pickle.load hashing.hash memory.Memory")
_names(LOADER, "joblib.numpy_pickle", "load _unpickle NumpyUnpickler load_temporary_memmap _load dump")
_names(LOADER, "joblib.numpy_pickle_compat", "load_compatibility ZipNumpyUnpickler read_zfile")
_names(LATER, "joblib.parallel", "Parallel delayed BatchedCalls")
MODULES["joblib.memory"] = LOADER
MODULES["joblib.executor"] = LATER
_names(LOADER, "sklearn.externals.joblib", "load Memory Parallel")
_names(LOADER, "sklearn.datasets", "fetch_openml load_files load_svmlight_file")
_names(LOADER, "yaml", "load load_all unsafe_load unsafe_load_all full_load full_load_all Loader UnsafeLoader "
       "FullLoader YAML")  # fmt: skip
MODULES["yaml.constructor"] = LOADER
MODULES["ruamel"] = LOADER
_names(LOADER, "keras.models", "load_model model_from_json model_from_config model_from_yaml")
_names(LOADER, "keras.saving", "load_model deserialize_keras_object")
_names(FILES, "keras.utils", "get_file")
_names(LOADER, "tensorflow.keras.models", "load_model model_from_json model_from_config model_from_yaml")
_names(CARRIER, "tensorflow", "py_function numpy_function py_func load_library load_op_library saved_model.load "
       "io.read_file io.write_file keras.models.load_model")  # fmt: skip
MODULES["tensorflow.io"] = FILES
MODULES["tensorflow.python.ops.script_ops"] = CARRIER
MODULES["tensorflow.python.framework.load_library"] = NATIVE
MODULES["keras.src.legacy.saving"] = LOADER
_names(LOADER, "networkx", "read_gpickle")
_names(LOADER, "nltk.data", "load")
_names(LOADER, "statsmodels.iolib.smpickle", "load_pickle")
_names(LOADER, "scipy.io", "loadmat")
_names(CODE, "transformers.dynamic_module_utils", "get_class_from_dynamic_module get_class_in_module")
_names(LOADER, "transformers", "pipeline AutoModel.from_pretrained AutoTokenizer.from_pretrained")
_names(LOADER, "hydra._internal.utils", "_locate")
MODULES["hydra._internal"] = IMPORT
_names(CARRIER, "types", "GenericAlias.__class_getitem__")
_names(NETWORK, "email.mime.audio", "MIMEAudio")

# What rebuilds code: these say that the file carries Python functions, whoever wrote it.
DYNAMIC_MODULES = frozenset({"cloudpickle", "dill", "joblib.externals.cloudpickle", "ray.cloudpickle",
                             "pyspark.cloudpickle", "marshal", "sklearn.externals.joblib.externals"})  # fmt: skip


def _each(words: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), reason)


# A part of a name that says enough in whatever module it is found: modules re-export what they import. Leading and
# trailing underscores are left out of the comparison (``argparse._os``).
PARTS: dict[str, str] = _each("os posix nt subprocess pty system popen Popen spawn spawnl spawnv spawnlp "
                                      "check_output check_call getoutput getstatusoutput execv execve execl execlp "
                                      "fork forkpty startfile posix_spawn commands", PROGRAM)  # fmt: skip
PARTS |= _each("eval exec execfile runpy marshal CodeType FunctionType runstring runcode runsource "
                       "exec_module exec_command", CODE)  # fmt: skip
PARTS |= _each("builtins builtin import importlib import_module find_class resolve_name "
                       "load_module imp pkgutil", IMPORT)  # fmt: skip
PARTS |= _each("getattr setattr attrgetter methodcaller", ATTRIBUTE)
PARTS |= _each("pickle cPickle dill cloudpickle unsafe_load read_pickle from_pretrained load_from_checkpoint", LOADER)
PARTS |= _each("sys modules globals code gi_frame f_globals f_builtins", INTERPRETER)
PARTS |= _each("ctypes cffi CDLL load_library dlopen", NATIVE)
PARTS |= _each("socket urllib urlopen urlretrieve", NETWORK)
PARTS |= _each("shutil tempfile rmtree", FILES)
# The same for methods that only a dotted name reaches, in modules of the table (``pathlib.Path.write_text``).
METHODS: dict[str, str] = _each("write_text write_bytes open unlink rename replace rmdir mkdir symlink_to "
                                        "hardlink_to link_to touch chmod read_text read_bytes from_file tofile dump "
                                        "fromfile", FILES)  # fmt: skip
METHODS |= _each("load loads run call", LOADER)


def listed(module: str, name: str) -> str | None:
    """The reason of ``module.name`` by its full name or a module that it is in; None when neither is listed."""
    full = f"{module}.{name}"
    at = len(full)
    found = NAMES.get(full)
    while found is None and at > 0:
        found = MODULES.get(full[:at]) or NAMES.get(full[:at])
        at = full.rfind(".", 0, at)
    return found


def reason(module: str, name: str) -> str | None:
    """Why ``module.name`` runs code; None when it is not known to. A name of the table is data in any module."""
    if (module, name) in SAFE:
        return None
    found = listed(module, name)
    if found is None:
        parts = name.split(".")
        # What a dotted name walks to may be another module, and a name in it.
        for at in range(len(parts) - 1):
            found = found or NAMES.get(".".join(parts[at:]).strip("_")) or MODULES.get(parts[at].strip("_"))
        for part in parts:
            found = found or PARTS.get(part) or PARTS.get(part.strip("_"))
        if found is None and len(parts) > 1 and module in TRUSTED:
            found = next((METHODS[part] for part in parts[1:] if part in METHODS), None)
    return found
