"""What skops itself takes for data: estimators of scikit-learn, ufuncs, dtypes. Exact names, by module; data only.

From skops 0.14 (skops/io/_trusted_types.py) with scikit-learn 1.9, and older places of the same names.
"""

from __future__ import annotations

_TYPES = """
numpy: absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_count bitwise_or
 bitwise_xor bool bytes_ cbrt ceil clongdouble complex128 complex64 conjugate copysign cos cosh datetime64 deg2rad
 degrees divide divmod equal exp exp2 expm1 fabs float16 float32 float64 float_power floor floor_divide fmax fmin fmod
 frexp gcd greater greater_equal heaviside hypot int16 int32 int64 int8 invert isfinite isinf isnan isnat lcm ldexp
 left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
 longdouble longlong matmul matvec maximum minimum modf multiply negative nextafter not_equal object_ positive power
 rad2deg radians reciprocal remainder right_shift rint sign signbit sin sinh spacing sqrt square str_ subtract tan
 tanh timedelta64 trunc uint16 uint32 uint64 uint8 ulonglong vecdot vecmat void
numpy.random: MT19937 PCG64 PCG64DXSM Philox SFC64
scipy.special._special_ufuncs: airy airye bei beip ber berp besselpoly beta betaln binom cbrt cosdg cosm1 cotdg dawsn
 ellipe ellipeinc ellipj ellipk ellipkinc ellipkm1 erf erfc erfcx erfi exp1 exp10 exp2 expi expit expm1 exprel fresnel
 gamma gammainc gammaincc gammainccinv gammaincinv gammaln gammasgn hankel1 hankel1e hankel2 hankel2e hyp2f1 i0 i0e i1
 i1e it2i0k0 it2j0y0 it2struve0 itairy iti0k0 itj0y0 itmodstruve0 itstruve0 iv ive j0 j1 jv jve k0 k0e k1 k1e kei keip
 kelvin ker kerp kv kve log1p log_expit log_ndtr log_wright_bessel loggamma logit mathieu_a mathieu_b mathieu_cem
 mathieu_modcem1 mathieu_modcem2 mathieu_modsem1 mathieu_modsem2 mathieu_sem modfresnelm modfresnelp modstruve ndtr
 obl_ang1 obl_ang1_cv obl_cv obl_rad1 obl_rad1_cv obl_rad2 obl_rad2_cv pbdv pbvv pbwa pro_ang1 pro_ang1_cv pro_cv
 pro_rad1 pro_rad1_cv pro_rad2 pro_rad2_cv psi radian rgamma sindg struve tandg voigt_profile wofz wright_bessel
 xlog1py xlogy y0 y1 yv yve zetac
scipy.special._ufuncs: agm bdtr bdtrc bdtri bdtrik bdtrin betainc betaincc betainccinv betaincinv boxcox boxcox1p
 btdtria btdtrib chdtr chdtrc chdtri chdtriv chndtr chndtridf chndtrinc chndtrix elliprc elliprd elliprf elliprg
 elliprj entr erfcinv erfinv eval_chebyc eval_chebys eval_chebyt eval_chebyu eval_gegenbauer eval_genlaguerre
 eval_hermite eval_hermitenorm eval_jacobi eval_laguerre eval_legendre eval_sh_chebyt eval_sh_chebyu eval_sh_jacobi
 eval_sh_legendre expn fdtr fdtrc fdtri fdtridfd gdtr gdtrc gdtria gdtrib gdtrix huber hyp0f1 hyp1f1 hyperu inv_boxcox
 inv_boxcox1p kl_div kn kolmogi kolmogorov lpmv nbdtr nbdtrc nbdtri nbdtrik nbdtrin ncfdtr ncfdtri ncfdtridfd
 ncfdtridfn ncfdtrinc nctdtr nctdtridf nctdtrinc nctdtrit ndtri ndtri_exp nrdtrimn nrdtrisd owens_t pdtr pdtrc pdtri
 pdtrik poch powm1 pseudo_huber rel_entr round shichi sici smirnov smirnovi spence stdtr stdtridf stdtrit tklmbda
 wrightomega yn
sklearn._loss.link: HalfLogitLink IdentityLink Interval LogLink LogitLink MultinomialLogit
sklearn._loss.loss: AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss HalfMultinomialLoss HalfPoissonLoss
 HalfSquaredError HuberLoss PinballLoss
sklearn.calibration: CalibratedClassifierCV
sklearn.cluster._affinity_propagation: AffinityPropagation
sklearn.cluster._agglomerative: AgglomerativeClustering FeatureAgglomeration
sklearn.cluster._bicluster: SpectralBiclustering SpectralCoclustering
sklearn.cluster._birch: Birch
sklearn.cluster._bisect_k_means: BisectingKMeans
sklearn.cluster._dbscan: DBSCAN
sklearn.cluster._hdbscan.hdbscan: HDBSCAN
sklearn.cluster._kmeans: KMeans MiniBatchKMeans
sklearn.cluster._mean_shift: MeanShift
sklearn.cluster._optics: OPTICS
sklearn.cluster._spectral: SpectralClustering
sklearn.compose._column_transformer: ColumnTransformer
sklearn.compose._target: TransformedTargetRegressor
sklearn.covariance._elliptic_envelope: EllipticEnvelope
sklearn.covariance._empirical_covariance: EmpiricalCovariance
sklearn.covariance._graph_lasso: GraphicalLasso GraphicalLassoCV
sklearn.covariance._robust_covariance: MinCovDet
sklearn.covariance._shrunk_covariance: LedoitWolf OAS ShrunkCovariance
sklearn.cross_decomposition._pls: CCA PLSCanonical PLSRegression PLSSVD
sklearn.decomposition._dict_learning: DictionaryLearning MiniBatchDictionaryLearning SparseCoder
sklearn.decomposition._factor_analysis: FactorAnalysis
sklearn.decomposition._fastica: FastICA
sklearn.decomposition._incremental_pca: IncrementalPCA
sklearn.decomposition._kernel_pca: KernelPCA
sklearn.decomposition._lda: LatentDirichletAllocation
sklearn.decomposition._nmf: MiniBatchNMF NMF
sklearn.decomposition._pca: PCA
sklearn.decomposition._sparse_pca: MiniBatchSparsePCA SparsePCA
sklearn.decomposition._truncated_svd: TruncatedSVD
sklearn.discriminant_analysis: LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis
sklearn.dummy: DummyClassifier DummyRegressor
sklearn.ensemble._bagging: BaggingClassifier BaggingRegressor
sklearn.ensemble._forest: ExtraTreesClassifier ExtraTreesRegressor RandomForestClassifier RandomForestRegressor
 RandomTreesEmbedding
sklearn.ensemble._gb: GradientBoostingClassifier GradientBoostingRegressor
sklearn.ensemble._hist_gradient_boosting.binning: _BinMapper
sklearn.ensemble._hist_gradient_boosting.gradient_boosting: HistGradientBoostingClassifier
 HistGradientBoostingRegressor
sklearn.ensemble._iforest: IsolationForest
sklearn.ensemble._stacking: StackingClassifier StackingRegressor
sklearn.ensemble._voting: VotingClassifier VotingRegressor
sklearn.ensemble._weight_boosting: AdaBoostClassifier AdaBoostRegressor
sklearn.feature_extraction._dict_vectorizer: DictVectorizer
sklearn.feature_extraction._hash: FeatureHasher
sklearn.feature_extraction.image: PatchExtractor
sklearn.feature_extraction.text: CountVectorizer HashingVectorizer TfidfTransformer TfidfVectorizer
sklearn.feature_selection._from_model: SelectFromModel
sklearn.feature_selection._rfe: RFE RFECV
sklearn.feature_selection._sequential: SequentialFeatureSelector
sklearn.feature_selection._univariate_selection: GenericUnivariateSelect SelectFdr SelectFpr SelectFwe SelectKBest
 SelectPercentile
sklearn.feature_selection._variance_threshold: VarianceThreshold
sklearn.frozen._frozen: FrozenEstimator
sklearn.gaussian_process._gpc: GaussianProcessClassifier
sklearn.gaussian_process._gpr: GaussianProcessRegressor
sklearn.impute._base: MissingIndicator SimpleImputer
sklearn.impute._knn: KNNImputer
sklearn.isotonic: IsotonicRegression
sklearn.kernel_approximation: AdditiveChi2Sampler Nystroem PolynomialCountSketch RBFSampler SkewedChi2Sampler
sklearn.kernel_ridge: KernelRidge
sklearn.linear_model._base: LinearRegression
sklearn.linear_model._bayes: ARDRegression BayesianRidge
sklearn.linear_model._coordinate_descent: ElasticNet ElasticNetCV Lasso LassoCV MultiTaskElasticNet
 MultiTaskElasticNetCV MultiTaskLasso MultiTaskLassoCV
sklearn.linear_model._glm.glm: GammaRegressor PoissonRegressor TweedieRegressor
sklearn.linear_model._huber: HuberRegressor
sklearn.linear_model._least_angle: Lars LarsCV LassoLars LassoLarsCV LassoLarsIC
sklearn.linear_model._logistic: LogisticRegression LogisticRegressionCV
sklearn.linear_model._omp: OrthogonalMatchingPursuit OrthogonalMatchingPursuitCV
sklearn.linear_model._passive_aggressive: PassiveAggressiveClassifier PassiveAggressiveRegressor
sklearn.linear_model._perceptron: Perceptron
sklearn.linear_model._quantile: QuantileRegressor
sklearn.linear_model._ransac: RANSACRegressor
sklearn.linear_model._ridge: Ridge RidgeCV RidgeClassifier RidgeClassifierCV
sklearn.linear_model._stochastic_gradient: SGDClassifier SGDOneClassSVM SGDRegressor
sklearn.linear_model._theil_sen: TheilSenRegressor
sklearn.manifold._classical_mds: ClassicalMDS
sklearn.manifold._isomap: Isomap
sklearn.manifold._locally_linear: LocallyLinearEmbedding
sklearn.manifold._mds: MDS
sklearn.manifold._spectral_embedding: SpectralEmbedding
sklearn.manifold._t_sne: TSNE
sklearn.mixture._bayesian_mixture: BayesianGaussianMixture
sklearn.mixture._gaussian_mixture: GaussianMixture
sklearn.model_selection._classification_threshold: FixedThresholdClassifier TunedThresholdClassifierCV
sklearn.model_selection._search: GridSearchCV RandomizedSearchCV
sklearn.multiclass: OneVsOneClassifier OneVsRestClassifier OutputCodeClassifier
sklearn.multioutput: ClassifierChain MultiOutputClassifier MultiOutputRegressor RegressorChain
sklearn.naive_bayes: BernoulliNB CategoricalNB ComplementNB GaussianNB MultinomialNB
sklearn.neighbors._classification: KNeighborsClassifier RadiusNeighborsClassifier
sklearn.neighbors._graph: KNeighborsTransformer RadiusNeighborsTransformer
sklearn.neighbors._kde: KernelDensity
sklearn.neighbors._lof: LocalOutlierFactor
sklearn.neighbors._nca: NeighborhoodComponentsAnalysis
sklearn.neighbors._nearest_centroid: NearestCentroid
sklearn.neighbors._regression: KNeighborsRegressor RadiusNeighborsRegressor
sklearn.neighbors._unsupervised: NearestNeighbors
sklearn.neural_network._multilayer_perceptron: MLPClassifier MLPRegressor
sklearn.neural_network._rbm: BernoulliRBM
sklearn.pipeline: FeatureUnion Pipeline
sklearn.preprocessing._data: Binarizer KernelCenterer MaxAbsScaler MinMaxScaler Normalizer PowerTransformer
 QuantileTransformer RobustScaler StandardScaler
sklearn.preprocessing._discretization: KBinsDiscretizer
sklearn.preprocessing._encoders: OneHotEncoder OrdinalEncoder
sklearn.preprocessing._function_transformer: FunctionTransformer
sklearn.preprocessing._label: LabelBinarizer LabelEncoder MultiLabelBinarizer
sklearn.preprocessing._polynomial: PolynomialFeatures SplineTransformer
sklearn.preprocessing._target_encoder: TargetEncoder
sklearn.random_projection: GaussianRandomProjection SparseRandomProjection
sklearn.semi_supervised._label_propagation: LabelPropagation LabelSpreading
sklearn.semi_supervised._self_training: SelfTrainingClassifier
sklearn.svm._classes: LinearSVC LinearSVR NuSVC NuSVR OneClassSVM SVC SVR
sklearn.tree._classes: DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor
"""
_PLAIN = """
builtins: int float str bool complex list set frozenset tuple dict slice bytes bytearray map range NoneType
collections: OrderedDict defaultdict Counter deque
datetime: datetime date time timedelta timezone
numpy: ndarray dtype generic matrix float32 float64 int64 int32 bool_ str_ random
numpy.ma: MaskedArray
numpy.ma.core: MaskedArray
numpy.random: RandomState Generator
numpy.random.mtrand: RandomState
numpy.random._generator: Generator
numpy._core._multiarray_umath: _ufunc
numpy._core.multiarray: _reconstruct scalar
numpy.core.multiarray: _reconstruct scalar
scipy.sparse: csr_matrix csc_matrix coo_matrix csr_array csc_array coo_array bsr_matrix dia_matrix lil_matrix dok_matrix
scipy.sparse._csr: csr_matrix csr_array
scipy.sparse._csc: csc_matrix csc_array
scipy.sparse._coo: coo_matrix coo_array
sklearn._loss._loss: CyAbsoluteError CyExponentialLoss CyHalfBinomialLoss CyHalfGammaLoss CyHalfMultinomialLoss
 CyHalfPoissonLoss CyHalfSquaredError CyHalfTweedieLoss CyHalfTweedieLossIdentity CyHuberLoss CyPinballLoss
sklearn.utils: Bunch
sklearn.utils._bunch: Bunch
sklearn.tree._tree: Tree
sklearn.neighbors._kd_tree: KDTree KDTree64 KDTree32
sklearn.neighbors._ball_tree: BallTree BallTree64 BallTree32
sklearn.metrics._dist_metrics: DistanceMetric EuclideanDistance EuclideanDistance64 MinkowskiDistance64
sklearn.ensemble._gb_losses: BinomialDeviance LeastSquaresError MultinomialDeviance
sklearn.calibration: _CalibratedClassifier _SigmoidCalibration
sklearn.compose._column_transformer: _RemainderColsList
sklearn.ensemble._hist_gradient_boosting.binning: _BinMapper
sklearn.ensemble._hist_gradient_boosting.predictor: TreePredictor
sklearn.linear_model._sgd_fast: Hinge Log SquaredLoss ModifiedHuber
sklearn.linear_model._stochastic_gradient: Hinge Log
sklearn.preprocessing._label: LabelEncoder
sklearn.feature_extraction._dict_vectorizer: DictVectorizer
"""


def _spread(text: str) -> frozenset[str]:
    """``module: A B`` -> module.A, module.B; a line that begins with a blank goes on."""
    out: set[str] = set()
    module = ""
    for line in text.strip("\n").split("\n"):
        if not line.startswith(" "):
            module, _, line = line.partition(": ")
        out.update(f"{module}.{name}" for name in line.split())
    return frozenset(out)


TYPES = _spread(_TYPES) | _spread(_PLAIN)
